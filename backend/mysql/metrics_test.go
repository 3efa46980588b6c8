package mysql

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/uber-go/tally/v4"
)

// counts returns the counters of a name that are not zero, by the value of a
// tag.
func counts(scope tally.TestScope, name, tag string) map[string]int64 {
	values := make(map[string]int64)
	for _, c := range scope.Snapshot().Counters() {
		if c.Name() == name && c.Value() != 0 {
			values[c.Tags()[tag]] += c.Value()
		}
	}
	return values
}

func TestPublishAndPublishTxCountAlike(t *testing.T) {
	scope := tally.NewTestScope("", nil)
	db := migratedDB(t)
	f := fixtureOn(t, newTestQueue(t, Params{DB: db, Scope: scope}), db)
	mustPublish(t, f.q, message(tenantA, topicA, "key", 1), message(tenantA, topicA, "key", 2), message(tenantA, "more", "key", 1))
	mustPublish(t, f.q, message(tenantA, topicA, "key", 1))
	f.want("published", map[string]int64{topicA: 2, "more": 1}, counts(scope, "messages_published", "topic"))
	f.want("duplicates", map[string]int64{topicA: 1}, counts(scope, "publish_duplicates", "topic"))

	tx := f.begin()
	for range 2 { // the second finds the rows of the first
		if _, err := f.q.PublishTx(f.Context(), tx, message(tenantA, topicA, "key", 3), message(tenantA, "more", "key", 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(); err != nil { // too late to take it back
		t.Fatal(err)
	}
	f.want("published", map[string]int64{topicA: 3, "more": 2}, counts(scope, "messages_published", "topic"))
	f.want("duplicates", map[string]int64{topicA: 2, "more": 1}, counts(scope, "publish_duplicates", "topic"))
	batches := make(map[float64]int64)
	for _, h := range scope.Snapshot().Histograms() {
		if h.Name() == "publish_batch_size" {
			for size, n := range h.Values() {
				if n > 0 {
					batches[size] = n
				}
			}
		}
	}
	f.want("batches", map[float64]int64{5: 1, 1: 1, 2: 2}, batches)
}

func TestDatabaseErrorsCountByClass(t *testing.T) {
	scope := tally.NewTestScope("", nil)
	m := newMetrics(scope, someTenants(t), 0)
	number := func(n uint16) error { return fmt.Errorf("settle: %w", &mysql.MySQLError{Number: n}) }
	for _, err := range []error{
		nil, errors.New("the caller's own"), &stalledError{"key"}, &fencedError{}, context.Canceled, // none of the database's
		number(errLockDeadlock), number(errLockNowait), number(errConCount),
		number(errServerShutdown), mysql.ErrInvalidConn, context.DeadlineExceeded,
		number(errReadOnlyMode), number(errBadField),
	} {
		m.countError(err)
	}
	want := map[string]int64{"transient": 3, "connection": 3, "failover": 1, "permanent": 1}
	if got := counts(scope, "database_errors", "class"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	series := 0
	for _, c := range scope.Snapshot().Counters() {
		if c.Name() == "database_errors" {
			series++
		}
	}
	if series != int(classes) {
		t.Errorf("%d series of database_errors, want one a class before any has occurred", series)
	}
}

// Every run of a transaction that the database refuses counts, and so does what
// ends a caller's own.
func TestErrorsOfTransactionsCount(t *testing.T) {
	scope := tally.NewTestScope("", nil)
	db := migratedDB(t)
	f := fixtureOn(t, newTestQueue(t, Params{DB: db, Scope: scope}), db)
	runs := 0
	err := f.q.retry(f.Context(), func() error {
		if runs++; runs < 3 {
			return &mysql.MySQLError{Number: errLockDeadlock}
		}
		return &mysql.MySQLError{Number: errDupEntry}
	})
	if !isDuplicate(err) {
		t.Fatal(err)
	}
	f.want("after retries", map[string]int64{"transient": 2, "permanent": 1}, counts(scope, "database_errors", "class"))

	mustPublish(t, f.q, message(tenantA, topicA, "key", 1))
	blocking, blocked := f.begin(), f.begin()
	if _, err := f.q.PublishTx(f.Context(), blocking, message(tenantA, topicA, "key", 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := blocked.ExecContext(f.Context(), "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.q.PublishTx(f.Context(), blocked, message(tenantA, topicA, "key", 2)); !errors.Is(err, ErrRetryTransaction) {
		t.Fatalf("PublishTx of an id that another transaction holds: %v", err)
	}
	f.want("after PublishTx", map[string]int64{"transient": 3, "permanent": 1}, counts(scope, "database_errors", "class"))
}
