package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func mustCommit(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// statementsRunning polls until n statements that begin like that are under way.
func statementsRunning(t testing.TB, db *sql.DB, like string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d statements run: %s", n, like), func() bool {
		return queryInt(t, db, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE ?", like+"%") == n
	})
}

func mustPublishTx(t testing.TB, q *Queue, tx *sql.Tx, msgs ...backend.Message) []backend.Receipt {
	t.Helper()
	receipts, err := q.PublishTx(t.Context(), tx, msgs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

func TestPublishTxStoresWithTheCallersCommitOnly(t *testing.T) {
	q, db := onDB(t)
	stored := func() int { return queryInt(t, db, "SELECT COUNT(*) FROM queue_messages") }

	tx := begin(t, db)
	mustPublishTx(t, q, tx, message("a", "t", "k", 1), message("a", "t", "l", 2))
	if n := stored(); n != 0 {
		t.Errorf("%d messages seen before the commit", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := stored(); n != 0 {
		t.Errorf("%d messages seen after the rollback", n)
	}

	tx = begin(t, db)
	receipts := mustPublishTx(t, q, tx, message("a", "t", "k", 1), message("a", "t", "l", 2))
	mustCommit(t, tx)
	if n := stored(); n != 2 {
		t.Errorf("%d messages seen after the commit, want 2", n)
	}
	for i, key := range []string{"k", "l"} {
		if at := queryInt(t, db, "SELECT `offset` FROM queue_messages WHERE partition_key = ?", key); uint64(at) != receipts[i].Offset || receipts[i].Duplicate {
			t.Errorf("receipt %+v for a message at %d", receipts[i], at)
		}
	}
}

func TestPublishTxReceiptsTellRepeats(t *testing.T) {
	q, db := onDB(t)
	before := mustPublish(t, q, message("a", "t", "k", 1))[0]

	tx := begin(t, db)
	first := mustPublishTx(t, q, tx, message("a", "t", "k", 1), message("a", "t", "k", 2), message("a", "t", "k", 2))
	second := mustPublishTx(t, q, tx, message("a", "t", "k", 2), message("a", "t", "k", 3))
	mustCommit(t, tx)

	for name, c := range map[string]struct {
		got       backend.Receipt
		offset    uint64
		duplicate bool
	}{
		"stored before":             {first[0], before.Offset, true},
		"new":                       {first[1], first[1].Offset, false},
		"twice in a call":           {first[2], first[1].Offset, true},
		"stored by the call before": {second[0], first[1].Offset, true},
		"new in the second call":    {second[1], second[1].Offset, false},
	} {
		if c.got.Offset != c.offset || c.got.Duplicate != c.duplicate {
			t.Errorf("%s: %+v, want offset %d, duplicate %v", name, c.got, c.offset, c.duplicate)
		}
	}
}

// The caller's snapshot is older than all that happened since: a message that
// he cannot see is a duplicate all the same, and one that he still sees but
// that is gone is new.
func TestPublishTxWithAnOldSnapshot(t *testing.T) {
	q, db := onDB(t)
	gone := mustPublish(t, q, message("a", "t", "k", 1))[0]
	moved := mustPublish(t, q, message("a", "t", "k", 2))[0]

	tx := begin(t, db)
	if n := queryInt(t, tx, "SELECT COUNT(*) FROM queue_messages"); n != 2 { // takes the snapshot
		t.Fatalf("%d messages", n)
	}
	mustExec(t, db, "DELETE FROM queue_messages WHERE tenant = 'a' AND topic = 't' AND partition_key = 'k'")
	again := mustPublish(t, q, message("a", "t", "k", 2))[0]
	since := mustPublish(t, q, message("a", "t", "k", 3))[0]

	msgs := []backend.Message{message("a", "t", "k", 1), message("a", "t", "k", 2), message("a", "t", "k", 3)}
	receipts, err := q.PublishTx(t.Context(), tx, msgs...)
	if errors.Is(err, ErrRetryTransaction) && queryInt(t, db, "SELECT @@innodb_snapshot_isolation") == 1 {
		// This server refuses what an old snapshot would hide.
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		tx = begin(t, db)
		receipts, err = q.PublishTx(t.Context(), tx, msgs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustCommit(t, tx)
	if r := receipts[0]; r.Duplicate || r.Offset <= since.Offset {
		t.Errorf("the message that is gone (offset %d): %+v", gone.Offset, r)
	}
	if r := receipts[1]; !r.Duplicate || r.Offset != again.Offset {
		t.Errorf("the message that was at %d and is at %d: %+v", moved.Offset, again.Offset, r)
	}
	if r := receipts[2]; !r.Duplicate || r.Offset != since.Offset {
		t.Errorf("the message stored since at %d: %+v", since.Offset, r)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 3 {
		t.Errorf("%d messages stored, want 3", n)
	}
}

func TestPublishTxIsNotBlockedByCallersWhoHoldThePool(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprintf("own reserve=%v", own), func(t *testing.T) {
			dsn := testdb.DSN(t)
			p := Params{DB: openDB(t, dsn)}
			if own {
				p.Reserve = openDB(t, dsn)
			}
			db := p.DB
			if err := Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(4)
			q := newTestQueue(t, p)
			if err := q.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			free := 4 - db.Stats().InUse
			if own != (free == 4) {
				t.Fatalf("%d of 4 connections are free", free)
			}
			var txs []*sql.Tx
			for range free {
				txs = append(txs, begin(t, db))
			}
			var wait sync.WaitGroup
			for i, tx := range txs {
				wait.Go(func() {
					if _, err := q.PublishTx(t.Context(), tx, message("a", "t", fmt.Sprintf("k%d", i), 1)); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			for _, tx := range txs {
				mustCommit(t, tx)
			}
			if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != free {
				t.Errorf("%d messages stored, want %d", n, free)
			}
		})
	}
}

func TestPublishTxWithoutAFreeConnectionSaysWhatToDo(t *testing.T) {
	db := migratedDB(t)
	db.SetMaxOpenConns(1) // of which none can be kept aside
	q := newTestQueue(t, Params{DB: db})
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db)
	_, err := q.PublishTx(t.Context(), tx, message("a", "t", "k", 1))
	if err == nil || !strings.Contains(err.Error(), "all 1 are in use") || !strings.Contains(err.Error(), "Params.Reserve") {
		t.Errorf("got %v", err)
	}
	mustCommit(t, tx) // the caller goes on without the message
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 0 {
		t.Errorf("%d messages stored, want none: nobody looked at the watermarks", n)
	}
}

func TestPublishTxTakesANewConnectionForABrokenOne(t *testing.T) {
	q, db := onDB(t)
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		killReserve(t, q, db)
		tx := begin(t, db)
		mustPublishTx(t, q, tx, message("a", "t", "k", n))
		mustCommit(t, tx)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 3 {
		t.Errorf("%d messages stored, want 3", n)
	}
}

func TestPublishTxRefusesBeforeTheDatabase(t *testing.T) {
	q, db := onDB(t)
	tx := begin(t, db)
	for name, c := range map[string]struct {
		tx   *sql.Tx
		msgs []backend.Message
		want string
	}{
		"no transaction": {nil, []backend.Message{message("a", "t", "k", 1)}, "tx: must not be nil"},
		"two tenants":    {tx, []backend.Message{message("a", "t", "k", 1), message("b", "t", "k", 1)}, `tenant "b" beside "a"`},
		"bad id":         {tx, []backend.Message{{Tenant: "a", Topic: "t", PartitionKey: "k"}}, "message id"},
	} {
		if _, err := q.PublishTx(t.Context(), c.tx, c.msgs...); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	mustCommit(t, tx)
}

// In the caller's transaction nothing is retried: a deadlock has ended it, and
// what he did before is gone.
func TestPublishTxReturnsARetryableErrorForADeadlock(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 1))
	mustExec(t, db, "CREATE TABLE mine (id INT PRIMARY KEY, n INT) ENGINE = InnoDB")
	mustExec(t, db, "INSERT INTO mine VALUES (1, 0), (2, 0), (3, 0)")

	// Theirs has written more, so ours is the victim.
	theirs, ours := begin(t, db), begin(t, db)
	mustExec(t, theirs, "UPDATE mine SET n = 1 WHERE id > 1")
	mustExec(t, theirs, "SELECT * FROM queue_messages WHERE tenant = 'a' AND topic = 't' AND partition_key = 'k' AND id = 'm1' FOR UPDATE")
	mustExec(t, ours, "SELECT * FROM mine WHERE id = 1 FOR UPDATE")
	waiting := make(chan error, 1)
	go func() {
		_, err := theirs.Exec("UPDATE mine SET n = 2 WHERE id = 1")
		waiting <- err
	}()
	statementsRunning(t, db, "UPDATE mine", 1)
	_, err := q.PublishTx(t.Context(), ours, message("a", "t", "k", 1))
	if !errors.Is(err, ErrRetryTransaction) || !hasNumber(err, errLockDeadlock) {
		t.Errorf("got %v", err)
	}
	if err := ours.Rollback(); err != nil {
		t.Error(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("their transaction: %v", err)
	}
}

func TestPublishTxEndsWithItsContext(t *testing.T) {
	q, db := onDB(t)
	mustPublish(t, q, message("a", "t", "k", 1))
	blocker := begin(t, db)
	mustExec(t, blocker, "SELECT * FROM queue_messages WHERE tenant = 'a' AND topic = 't' AND partition_key = 'k' FOR UPDATE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := q.PublishTx(ctx, begin(t, db), message("a", "t", "k", 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
