package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// openDB opens a pool on dsn that is closed with the test.
func openDB(t testing.TB, dsn string, opts ...OpenOption) *sql.DB {
	t.Helper()
	db, err := Open(dsn, opts...)
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

// migratedDB opens a pool on a database of the test's own with the queue's
// tables.
func migratedDB(t testing.TB) *sql.DB {
	t.Helper()
	db := openDB(t, testdb.DSN(t))
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// newTestQueue makes a queue that is closed with the test.
func newTestQueue(t testing.TB, p Params) *Queue {
	t.Helper()
	q, err := NewQueue(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			t.Errorf("close the queue: %v", err)
		}
	})
	return q
}

// onDB makes a queue on a database of its own.
func onDB(t testing.TB) (*Queue, *sql.DB) {
	t.Helper()
	db := migratedDB(t)
	return newTestQueue(t, Params{DB: db}), db
}

// message makes the n-th message of a partition.
func message(tenant tenants.ID, topic, key string, n int) backend.Message {
	return backend.Message{
		Tenant: tenant, Topic: topic, PartitionKey: key, ID: fmt.Sprintf("m%d", n), Payload: fmt.Appendf(nil, "payload %d", n),
	}
}

func mustExec(t testing.TB, db querier, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func queryInt(t testing.TB, db querier, query string, args ...any) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func mustPublish(t testing.TB, q *Queue, msgs ...backend.Message) []backend.Receipt {
	t.Helper()
	receipts, err := q.Publish(t.Context(), msgs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

// eventually polls for what no channel tells.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
