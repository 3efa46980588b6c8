package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// Where the tests of the delivery side work unless they say otherwise.
const (
	tenantA = tenants.ID("acme")
	topicA  = "orders"
	groupA  = "billing"
	groupB  = "audit"
)

// fixture is a queue on a database of its own.
type fixture struct {
	testing.TB
	ctx       context.Context
	q         *Queue
	db        *sql.DB
	published int
	instances uint64
}

func newFixture(t testing.TB) *fixture {
	q, db := onDB(t)
	return fixtureOn(t, q, db)
}

// newFixtureWith works on a pool that the application has opened by itself.
func newFixtureWith(t testing.TB, collation string) *fixture {
	cfg, err := mysql.ParseDSN(testdb.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Collation = collation
	db := openDB(t, cfg.FormatDSN())
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return fixtureOn(t, newTestQueue(t, Params{DB: db}), db)
}

func fixtureOn(t testing.TB, q *Queue, db *sql.DB) *fixture {
	// Whoever waits for a lock that nobody gives up is found out.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &fixture{TB: t, ctx: ctx, q: q, db: db}
}

// Context ends with the test or after a minute.
func (f *fixture) Context() context.Context { return f.ctx }

// store makes a registered member of a group.
func (f *fixture) store(group, name string, change ...func(*backend.SubscriptionConfig)) *store {
	f.Helper()
	s := f.unregistered(topicA, group, name, change...)
	if err := s.Register(f.Context(), []tenants.ID{tenantA}); err != nil {
		f.Fatal(err)
	}
	return s
}

func (f *fixture) unregistered(topic, group, name string, change ...func(*backend.SubscriptionConfig)) *store {
	f.Helper()
	cfg := backend.SubscriptionConfig{Group: group, SubscriberName: name}
	for _, c := range change {
		c(&cfg)
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(topic); err != nil {
		f.Fatal(err)
	}
	f.instances++
	return newStore(f.q, topic, cfg, f.instances)
}

// publish stores n messages in a partition and returns their offsets.
func (f *fixture) publish(key string, n int) []uint64 {
	f.Helper()
	msgs := make([]backend.Message, n)
	for i := range msgs {
		f.published++
		msgs[i] = message(tenantA, topicA, key, f.published)
	}
	var offsets []uint64
	for _, r := range mustPublish(f, f.q, msgs...) {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// grant acquires one partition and fails the test if it is denied.
func (f *fixture) grant(s *store, key string, claim uint64) engine.Grant {
	f.Helper()
	a := f.acquire(s, engine.Candidate{Key: key, Claim: claim})
	if len(a.Grants) != 1 {
		f.Fatalf("acquire %q: %+v", key, a)
	}
	return a.Grants[0]
}

func (f *fixture) acquire(s *store, candidates ...engine.Candidate) engine.Acquired {
	f.Helper()
	a, err := s.Acquire(f.Context(), tenantA, candidates)
	if err != nil {
		f.Fatal(err)
	}
	return a
}

func (f *fixture) settle(s *store, settlements ...engine.Settlement) []engine.Settled {
	f.Helper()
	results, err := s.Settle(f.Context(), tenantA, settlements)
	if err != nil {
		f.Fatal(err)
	}
	if len(results) != len(settlements) {
		f.Fatalf("%d results for %d settlements", len(results), len(settlements))
	}
	return results
}

func (f *fixture) renew(s *store, leases ...engine.Lease) []string {
	f.Helper()
	lost, err := s.Renew(f.Context(), tenantA, leases)
	if err != nil {
		f.Fatal(err)
	}
	return lost
}

func (f *fixture) release(s *store, releases ...engine.Release) {
	f.Helper()
	if err := s.Release(f.Context(), tenantA, releases); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) fetch(s *store, ranges ...engine.Range) []engine.Fetched {
	f.Helper()
	got, err := s.Fetch(f.Context(), tenantA, ranges)
	if err != nil {
		f.Fatal(err)
	}
	return got
}

// offsets reads all of a partition that lies above an offset.
func (f *fixture) offsets(s *store, key string, after uint64) []uint64 {
	f.Helper()
	var offsets []uint64
	for _, m := range f.fetch(s, engine.Range{Key: key, After: after, Through: engine.Unbounded, Limit: 1000})[0].Messages {
		offsets = append(offsets, m.Offset)
	}
	return offsets
}

// expire ends the leases of a group as if their time had passed.
func (f *fixture) expire(s *store, keys ...string) {
	f.Helper()
	for _, key := range keys {
		mustExec(f, f.db, "UPDATE queue_partition_leases SET lease_expires_at = 1"+ofGroup+" AND partition_key = ?",
			string(tenantA), s.group, s.topic, key)
	}
}

// rows counts what is stored of the tenant in every table, registrations left
// out.
func (f *fixture) rows() map[string]int {
	f.Helper()
	rows := make(map[string]int)
	for _, table := range []string{"queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_subscriber_heartbeats"} {
		if n := queryInt(f, f.db, "SELECT COUNT(*) FROM "+table+" WHERE tenant = ?", string(tenantA)); n > 0 {
			rows[table] = n
		}
	}
	if n := queryInt(f, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE tenant = ? AND partition_key <> ''", string(tenantA)); n > 0 {
		rows["queue_offsets"] = n
	}
	return rows
}

func (f *fixture) wantRows(want map[string]int) {
	f.Helper()
	if d := cmp.Diff(want, f.rows()); d != "" {
		f.Errorf("rows stored (-want +got):\n%s", d)
	}
}

func (f *fixture) want(what string, want, got any) {
	f.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// mark returns a group's watermark in a partition; ok is false without a row.
func (f *fixture) mark(group, key string) (acked uint64, ok bool) {
	f.Helper()
	err := f.db.QueryRowContext(f.Context(), "SELECT offset_acked FROM queue_offsets WHERE tenant = ? AND topic = ? AND partition_key = ? AND consumer_group = ?",
		string(tenantA), topicA, key, group).Scan(&acked)
	if err != nil && err != sql.ErrNoRows {
		f.Fatal(err)
	}
	return acked, err == nil
}

// begin opens a transaction that is rolled back with the test.
func (f *fixture) begin() *sql.Tx {
	f.Helper()
	tx, err := f.db.BeginTx(context.Background(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// insert adds a message of a partition in tx, as a publisher's transaction does
// before its commit, and returns its offset.
func (f *fixture) insert(tx *sql.Tx, key string) uint64 {
	f.Helper()
	f.published++
	m := message(tenantA, topicA, key, f.published)
	res, err := tx.ExecContext(f.Context(), stmtInsert+insertRow+stmtInsertEnd,
		string(m.Tenant), m.Topic, m.PartitionKey, m.ID, m.Payload, "{}", f.published)
	if err != nil {
		f.Fatal(err)
	}
	id, err := res.LastInsertId()
	if err != nil {
		f.Fatal(err)
	}
	return uint64(id)
}

func commit(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func shortLease(d time.Duration) func(*backend.SubscriptionConfig) {
	return func(c *backend.SubscriptionConfig) { c.LeaseDuration = d }
}

func latest(c *backend.SubscriptionConfig) { c.Start = backend.Latest }

func keysOfGrants(a engine.Acquired) []string {
	var keys []string
	for _, g := range a.Grants {
		keys = append(keys, g.Key)
	}
	slices.Sort(keys)
	return keys
}

func partitionKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%04d", i)
	}
	return keys
}

// dump returns every row of every table.
func dump(t testing.TB, db *sql.DB) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for table, order := range map[string]string{
		"queue_messages":              "topic, partition_key, `offset`",
		"queue_delivery_state":        "consumer_group, topic, partition_key, message_offset",
		"queue_offsets":               "topic, partition_key, consumer_group",
		"queue_partition_leases":      "consumer_group, topic, partition_key",
		"queue_subscriber_heartbeats": "consumer_group, topic, subscriber_name",
	} {
		if rows := dumpRows(t, db, "SELECT * FROM "+table+" ORDER BY tenant, "+order); rows != nil {
			all[table] = rows
		}
	}
	return all
}

func dumpRows(t testing.TB, db *sql.DB, statement string) (lines []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		line := ""
		for i, v := range values {
			line += fmt.Sprintf("%s=%q ", columns[i], v.String)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
