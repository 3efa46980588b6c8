package operator

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// Where the tests work unless they say otherwise.
const (
	acme    = tenants.ID("acme")
	orders  = "orders"
	dead    = "orders_dlq"
	billing = "billing"
	audit   = "audit"
)

// database is where a fixture's queue is. newDatabase makes it: one of its own, or
// with the tag vitess a cluster with empty tables.
type database struct {
	dsn    string
	config mysql.Config
	pool   *sql.DB // the operator's and its queue's
	// tables are the pools for what a test does to rows by itself, of whatever
	// tenants: pool, or on Vitess the shards one by one, that of the first tenant
	// first.
	tables []*sql.DB
}

// openPool opens a pool that is closed with the test.
func openPool(t testing.TB, open func() (*sql.DB, error)) *sql.DB {
	t.Helper()
	db, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the pool: %v", err)
		}
	})
	return db
}

// fixture is an operator of a queue.
type fixture struct {
	testing.TB
	*Operator
	database
	ctx context.Context
}

// newFixture consumes for the tenants given; none means acme.
func newFixture(t testing.TB, list ...tenants.ID) *fixture {
	t.Helper()
	if len(list) == 0 {
		list = []tenants.ID{acme}
	}
	d := newDatabase(t, list[0])
	set, err := tenants.New(list...)
	if err != nil {
		t.Fatal(err)
	}
	q, err := mysql.NewQueue(mysql.Params{DB: d.pool, Config: d.config, Tenants: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = q.Close(ctx) // an error if a test has kept deliveries
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &fixture{TB: t, Operator: New(d.pool, q), database: d, ctx: ctx}
}

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) want(what string, want, got any) {
	f.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// must is for calls of one result.
func must[T any](f *fixture) func(T, error) T {
	return func(v T, err error) T {
		f.Helper()
		f.check(err)
		return v
	}
}

// exec changes rows of whatever tenants. On Vitess it does so on every shard: what
// it stores of a tenant on the shard of another, no statement of the queue sees.
func (f *fixture) exec(statement string, args ...any) {
	f.Helper()
	for _, db := range f.tables {
		if _, err := db.ExecContext(f.ctx, statement, args...); err != nil {
			f.Fatalf("%.200s: %v", statement, err)
		}
	}
}

// number is one of the database, or of the first tenant's shard.
func (f *fixture) number(statement string, args ...any) int {
	f.Helper()
	var n int
	if err := f.tables[0].QueryRowContext(f.ctx, statement, args...).Scan(&n); err != nil {
		f.Fatalf("%s: %v", statement, err)
	}
	return n
}

func (f *fixture) publish(topic, key string, ids ...string) []backend.Receipt {
	f.Helper()
	msgs := make([]backend.Message, len(ids))
	for i, id := range ids {
		msgs[i] = backend.Message{Tenant: acme, Topic: topic, PartitionKey: key, ID: id, Payload: []byte("payload of " + id)}
	}
	return must[[]backend.Receipt](f)(f.q.Publish(f.ctx, msgs...))
}

// subscribe starts a subscriber whose retries and renewals are quick. It is
// stopped with the test.
func (f *fixture) subscribe(topic, group string, change ...func(*backend.SubscriptionConfig)) backend.Subscription {
	f.Helper()
	cfg := backend.SubscriptionConfig{
		Group: group, SubscriberName: group + "-1", PollInterval: 5 * time.Millisecond, LeaseDuration: time.Second,
		Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
	}
	for _, c := range change {
		c(&cfg)
	}
	sub := must[backend.Subscription](f)(f.q.Subscribe(f.ctx, topic, cfg))
	f.Cleanup(func() { f.stop(sub) })
	return sub
}

// stop ends a subscription whatever is still out.
func (f *fixture) stop(sub backend.Subscription) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sub.Stop(ctx)
	for range sub.Deliveries() {
	}
}

// register makes a group known without a subscriber.
func (f *fixture) register(topic string, groups ...string) {
	f.Helper()
	for _, group := range groups {
		f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, '', ?, 0, "+nowMillis+")",
			string(acme), topic, group)
	}
}

// next waits for a delivery.
func (f *fixture) next(sub backend.Subscription) backend.Delivery {
	f.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		if !ok {
			f.Fatal("the subscription has ended")
		}
		return d
	case <-f.ctx.Done():
		f.Fatal("waited for a delivery in vain")
	}
	return nil
}

// eventually polls for what no channel tells.
func (f *fixture) eventually(what string, done func() bool) {
	f.Helper()
	f.eventuallyEvery(2*time.Millisecond, what, done)
}

func (f *fixture) eventuallyEvery(pause time.Duration, what string, done func() bool) {
	f.Helper()
	for !done() {
		select {
		case <-time.After(pause):
		case <-f.ctx.Done():
			f.Fatalf("gave up waiting: %s", what)
		}
	}
}

// rows counts what is stored of a topic in every table, registrations and
// heartbeats left out.
func (f *fixture) rows(topic string) map[string]int {
	f.Helper()
	rows := make(map[string]int)
	for _, table := range []string{"queue_messages", "queue_delivery_state", "queue_partition_leases", "queue_offsets"} {
		if n := f.number("SELECT COUNT(*) FROM "+table+" WHERE tenant = ? AND topic = ? AND partition_key <> ''", string(acme), topic); n > 0 {
			rows[table] = n
		}
	}
	return rows
}

// load stores n messages of a tenant, spread over partitions evenly, quickly and
// past the queue.
func (f *fixture) load(tenant tenants.ID, topic string, partitions, n int) {
	f.Helper()
	const batch = 1_000
	for from := 0; from < n; from += batch {
		var values []string
		var args []any
		for i := from; i < min(from+batch, n); i++ {
			values = append(values, "(?, ?, ?, ?, 'a payload of some length, as they are: 0123456789 0123456789 0123456789', '{}', "+nowMillis+", 1)")
			args = append(args, string(tenant), topic, fmt.Sprintf("key-%05d", i%partitions), fmt.Sprintf("%d-%d", partitions, i))
		}
		f.exec("INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES "+
			strings.Join(values, ", "), args...)
	}
}
