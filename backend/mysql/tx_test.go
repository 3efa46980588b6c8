package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/uber-go/tally/v4"
)

func TestEveryDatabaseErrorHasAClass(t *testing.T) {
	number := func(n uint16, message string) error { return &mysql.MySQLError{Number: n, Message: message} }
	for _, c := range []struct {
		err  error
		want class
	}{
		{number(1205, "Lock wait timeout exceeded"), classRetry},
		{number(1213, "Deadlock found"), classRetry},
		{number(1020, "Record has changed since last read"), classRetry},
		{number(3572, "Statement aborted because lock(s) could not be acquired immediately"), classRetry},
		{number(1180, "Got error 149 during COMMIT"), classRetry},
		{number(1317, "transaction 17: ended at ... (exceeded timeout: 30s)"), classRetry},
		{number(1040, "Too many connections"), classRetry},
		{number(1105, "target: mq.-80.primary: vttablet: rpc error: code = Aborted desc = transaction 5: not found"), classRetry},
		{number(1105, `target: mq.-80.primary: no healthy tablet available for 'keyspace:"mq" shard:"-80" tablet_type:PRIMARY'`), classReconnect},
		{number(1105, "target: mq.-80.primary: vttablet: disallowed due to rule: enforce denied tables, CallerID: userData1"), classReconnect},
		{number(1317, "target: mq.-80.primary: vttablet: Row count exceeded 10000 (errno 10001) (sqlstate HY000)"), classPermanent},
		{number(1317, "multi-db transaction attempted: [target:{keyspace:\"mq\"}]"), classPermanent},
		{number(3024, "target: mq.-80.primary: vttablet: rpc error: code = DeadlineExceeded desc = maximum statement execution time exceeded"), classRetry},
		{number(1105, "target: mq.-80.primary: vttablet: rpc error: code = Unavailable desc = connection refused"), classReconnect},
		{number(1105, "primary is not serving, there may be a reparent operation in progress"), classReconnect},
		{number(1203, "transaction pool connection limit exceeded"), classRetry},
		{number(1062, "Duplicate entry 'code = Aborted' for key 'uq_message'"), classPermanent},
		{number(1047, "WSREP has not yet prepared node for application use"), classReconnect},
		{number(1053, "Server shutdown in progress"), classReconnect},
		{number(1927, "Connection was killed"), classReconnect},
		{driver.ErrBadConn, classReconnect},
		{mysql.ErrInvalidConn, classReconnect},
		{io.ErrUnexpectedEOF, classReconnect},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, classReconnect},
		{context.DeadlineExceeded, classReconnect}, // of the dialer: that of the call is looked at first
		{number(1290, "running with the --read-only option"), classFailover},
		{number(1792, "Cannot execute statement in a READ ONLY transaction"), classFailover},
		{number(1836, "Running in read-only mode"), classFailover},
		{number(1062, "Duplicate entry"), classPermanent},
		{number(1064, "You have an error in your SQL syntax"), classPermanent},
		{number(1105, "unsupported: something"), classPermanent},
		{number(1146, "Table doesn't exist"), classPermanent},
		{number(1406, "Data too long for column"), classPermanent},
		{context.Canceled, classPermanent},
		{sql.ErrNoRows, classPermanent},
		{errors.New("anything"), classPermanent},
		{nil, classPermanent},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: class %d, want %d", c.err, got, c.want)
		}
		if c.err == nil {
			continue
		}
		if got := classify(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%v, wrapped: class %d, want %d", c.err, got, c.want)
		}
	}
	if !isNowait(number(1205, "")) || !isNowait(number(3572, "")) || isNowait(number(1213, "")) {
		t.Error("isNowait")
	}
	if !isDuplicate(number(1062, "")) || isDuplicate(errors.New("1062")) {
		t.Error("isDuplicate")
	}
}

// txQueue makes a queue whose repetitions are counted, and a table to write.
func txQueue(t *testing.T) (*Queue, *sql.DB, func() int64) {
	db := migratedDB(t)
	scope := tally.NewTestScope("", nil)
	q := newTestQueue(t, Params{DB: db, Scope: scope})
	mustExec(t, db, "CREATE TABLE mine (id INT PRIMARY KEY, n INT NOT NULL) ENGINE = InnoDB")
	mustExec(t, db, "INSERT INTO mine VALUES (1, 0), (2, 0)")
	return q, db, func() int64 { return scope.Snapshot().Counters()["transaction_retries+"].Value() }
}

func TestTransactionsRunAgainFromTheStart(t *testing.T) {
	q, db, retries := txQueue(t)
	runs := 0
	err := q.inTx(t.Context(), func(tx *sql.Tx) error {
		runs++
		if _, err := tx.Exec("UPDATE mine SET n = n + 1 WHERE id = 1"); err != nil {
			return err
		}
		if runs < 4 {
			return fmt.Errorf("settle: %w", &mysql.MySQLError{Number: errLockDeadlock})
		}
		return nil
	})
	if err != nil || runs != 4 || retries() != 3 {
		t.Errorf("%d runs, %d repetitions counted: %v", runs, retries(), err)
	}
	if n := queryInt(t, db, "SELECT n FROM mine WHERE id = 1"); n != 1 {
		t.Errorf("counted to %d: a run that failed was not rolled back", n)
	}
}

func TestTransactionsAreRolledBack(t *testing.T) {
	q, db, retries := txQueue(t)
	update := func(tx *sql.Tx) {
		if _, err := tx.Exec("UPDATE mine SET n = n + 1 WHERE id = 1"); err != nil {
			t.Error(err)
		}
	}
	mine := errors.New("mine")
	if err := q.inTx(t.Context(), func(tx *sql.Tx) error { update(tx); return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic went away")
			}
		}()
		_ = q.inTx(t.Context(), func(tx *sql.Tx) error { update(tx); panic("of a caller") })
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	err := q.inTx(ctx, func(tx *sql.Tx) error {
		update(tx)
		cancel(enough)
		_, err := tx.ExecContext(ctx, "UPDATE mine SET n = 9")
		return err
	})
	if !errors.Is(err, enough) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, "the cancelled transaction lets go", func() bool { return db.Stats().InUse == 0 })
	mustExec(t, db, "UPDATE mine SET n = n + 10 WHERE id = 1") // no lock is left
	if n := queryInt(t, db, "SELECT n FROM mine WHERE id = 1"); n != 10 || retries() != 0 {
		t.Errorf("n = %d after %d repetitions", n, retries())
	}
}

func TestTransactionsGiveUp(t *testing.T) {
	q, _, _ := txQueue(t)
	runs := 0
	err := q.inTx(t.Context(), func(*sql.Tx) error { runs++; return &mysql.MySQLError{Number: errLockDeadlock} })
	if runs != txAttempts || !hasNumber(err, errLockDeadlock) {
		t.Errorf("%d runs: %v", runs, err)
	}

	// The wait between two runs ends with the context.
	ctx, cancel := context.WithCancel(t.Context())
	runs = 0
	err = q.inTx(ctx, func(*sql.Tx) error {
		if runs++; runs == 3 {
			time.AfterFunc(time.Millisecond, cancel)
		}
		return &mysql.MySQLError{Number: errLockDeadlock}
	})
	if !errors.Is(err, context.Canceled) || !hasNumber(err, errLockDeadlock) || runs >= txAttempts {
		t.Errorf("%d runs: %v", runs, err)
	}
}

// Two transactions that take two locks in opposite orders both succeed.
func TestDeadlockedTransactionsSucceed(t *testing.T) {
	q, db, retries := txQueue(t)
	met := make(chan struct{}, 2)
	both := make(chan struct{})
	done := make(chan error, 2)
	for first := range 2 {
		runs := 0
		go func() {
			done <- q.inTx(context.WithoutCancel(t.Context()), func(tx *sql.Tx) error {
				runs++
				if _, err := tx.Exec("UPDATE mine SET n = n + 1 WHERE id = ?", first+1); err != nil {
					return err
				}
				if runs == 1 {
					met <- struct{}{}
					<-both
				}
				_, err := tx.Exec("UPDATE mine SET n = n + 1 WHERE id = ?", 2-first)
				return err
			})
		}()
	}
	<-met
	<-met
	close(both)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := queryInt(t, db, "SELECT SUM(n) FROM mine"); n != 4 || retries() == 0 {
		t.Errorf("sum %d after %d repetitions", n, retries())
	}
}

// A connection that leads to a server which no longer writes is not used
// again.
func TestReadOnlyConnectionsAreDropped(t *testing.T) {
	q, db, _ := txQueue(t)
	db.SetMaxOpenConns(1)
	var ids []int
	err := q.inTx(t.Context(), func(tx *sql.Tx) error {
		ids = append(ids, queryInt(t, tx, "SELECT CONNECTION_ID()"))
		if len(ids) < 3 {
			return &mysql.MySQLError{Number: errReadOnlyMode}
		}
		return nil
	})
	if err != nil || len(ids) != 3 || ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("connections %v: %v", ids, err)
	}
}
