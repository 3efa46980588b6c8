//go:build vitess

package vitesstest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
	"github.com/tenantmq/tenantmq/tenants"
)

// tables are all that hold rows of tenants.
var tables = []string{"queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats"}

// move is a test in which a tenant comes to a shard with its rows, as resharding brings them: the server it comes from has
// handed out many more offsets than the one it comes to.
type move struct {
	*testing.T
	tenant   tenants.ID // belongs on to
	from, to *sql.DB
	before   *mysql.Queue // on the server that the tenant comes from
	after    *mysql.Queue // on vtgate
	scope    tally.TestScope
}

func newMove(t *testing.T) *move {
	t.Helper()
	cluster, err := vitesstest.Start(t.Context(), vitesstest.Config{
		Shards: 2, Programs: os.Getenv(vitesstest.EnvPrograms), Schema: mysql.VitessSchema(), VSchema: mysql.VSchema(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := &move{T: t, scope: tally.NewTestScope("", nil)}
	m.to, m.from = m.open(cluster.Shards[0].DSN()), m.open(cluster.Shards[1].DSN())
	gate := m.open(cluster.DSN(), mysql.ServerIsolation())
	set, err := tenants.New("a", "b", "c", "d", "e", "f", "g", "h")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		queue **mysql.Queue
		db    *sql.DB
		scope tally.Scope
	}{{&m.before, m.from, nil}, {&m.after, gate, m.scope}} {
		*q.queue, err = mysql.NewQueue(mysql.Params{DB: q.db, Tenants: set, Scope: q.scope, Config: mysql.Config{ExternalSchema: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := (*q.queue).Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, id := range set.IDs() {
		shard, err := cluster.ShardOf(t.Context(), gate, string(id))
		if err != nil {
			t.Fatal(err)
		}
		if shard == 0 {
			m.tenant = id
		}
	}
	m.exec(m.from, "ALTER TABLE queue_messages AUTO_INCREMENT = 1000000")
	return m
}

func (m *move) open(dsn string, opts ...mysql.OpenOption) *sql.DB {
	m.Helper()
	db, err := mysql.Open(dsn, opts...)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		if err := db.Close(); err != nil {
			m.Error(err)
		}
	})
	return db
}

func (m *move) exec(db *sql.DB, text string, args ...any) {
	m.Helper()
	if _, err := db.ExecContext(m.Context(), text, args...); err != nil {
		m.Fatalf("%s: %v", text, err)
	}
}

// publish stores the messages numbered from first of some partitions.
func (m *move) publish(q *mysql.Queue, first, n int, keys ...string) (stored []backend.Receipt) {
	m.Helper()
	for i := first; i < first+n; i++ {
		for _, key := range keys {
			receipts, err := q.Publish(m.Context(), backend.Message{
				Tenant: m.tenant, Topic: topic, PartitionKey: key, ID: fmt.Sprint(i), Payload: []byte("x"),
			})
			if err != nil {
				m.Fatal(err)
			}
			stored = append(stored, receipts...)
		}
	}
	return stored
}

// take consumes n messages of a group and returns their numbers by key, in the order they came in.
func (m *move) take(q *mysql.Queue, cfg backend.SubscriptionConfig, n int) map[string][]string {
	m.Helper()
	sub, err := q.Subscribe(m.Context(), topic, cfg)
	if err != nil {
		m.Fatal(err)
	}
	taken := make(map[string][]string)
	for i := range n {
		select {
		case d := <-sub.Deliveries():
			msg := d.Message()
			taken[msg.PartitionKey] = append(taken[msg.PartitionKey], msg.ID)
			if err := d.Ack(m.Context()); err != nil {
				m.Fatal(err)
			}
		case <-time.After(30 * time.Second):
			m.Fatalf("%d of %d messages came to group %s: %v", i, n, cfg.Group, taken)
		}
	}
	if err := sub.Stop(m.Context()); err != nil {
		m.Fatal(err)
	}
	return taken
}

// bring moves the tenant's rows to the shard it belongs on.
func (m *move) bring() {
	m.Helper()
	for _, table := range tables {
		m.copy(table)
		m.exec(m.from, "DELETE FROM "+table+" WHERE tenant = ?", string(m.tenant))
	}
}

func (m *move) copy(table string) {
	m.Helper()
	rows, err := m.from.QueryContext(m.Context(), "SELECT * FROM "+table+" WHERE tenant = ?", string(m.tenant))
	if err != nil {
		m.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		m.Fatal(err)
	}
	values, dest := make([]any, len(columns)), make([]any, len(columns))
	for i := range dest {
		dest[i] = &values[i]
	}
	insert := "INSERT INTO " + table + " VALUES (" + strings.TrimSuffix(strings.Repeat("?,", len(columns)), ",") + ")"
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			m.Fatal(err)
		}
		m.exec(m.to, insert, values...)
	}
	if err := rows.Err(); err != nil {
		m.Fatal(err)
	}
}

func numbers(first, n int) (list []string) {
	for i := first; i < first+n; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

func (m *move) want(what string, want, got []string) {
	m.Helper()
	if !slices.Equal(want, got) {
		m.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A tenant moved in the middle of its work goes on where it was: nothing is lost, nothing comes twice, and partitions
// keep their order.
func TestVitessATenantMovesWithItsRows(t *testing.T) {
	m := newMove(t)
	cfg := backend.SubscriptionConfig{Group: "g", MaxInFlight: 1}
	m.publish(m.before, 0, 20, "x", "y", "z")
	seen := m.take(m.before, cfg, 25)
	m.bring()
	m.publish(m.after, 20, 20, "x", "y", "z")
	for key, ids := range m.take(m.after, cfg, 3*40-25) {
		m.want("partition "+key, numbers(0, 40), append(seen[key], ids...))
	}
}

// All that comes with this tenant is a position far beyond what the shard's counter has reached: without a fence its next
// messages would be behind it.
func TestVitessATenantMovesToACounterBehindItsWatermark(t *testing.T) {
	m := newMove(t)
	late := backend.SubscriptionConfig{Group: "late", Start: backend.Latest}
	old := m.publish(m.before, 0, 3, "x")
	m.take(m.before, late, 0) // its position is behind them
	m.take(m.before, backend.SubscriptionConfig{Group: "g"}, 3)
	m.bring()
	for _, r := range m.publish(m.after, 3, 3, "x") {
		if r.Offset <= old[2].Offset {
			t.Errorf("stored at %d, and the group's position is %d", r.Offset, old[2].Offset)
		}
	}
	m.want("messages", numbers(3, 3), m.take(m.after, late, 3)["x"])
	if n := m.scope.Snapshot().Counters()["offset_counter_raises+"].Value(); n != 1 {
		t.Errorf("the counter was raised %d times, want once", n)
	}
}
