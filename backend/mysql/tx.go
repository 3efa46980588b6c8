package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds of a transaction's repetitions: about two seconds of waits in all. None
// begins after txPatience, which a few lock timeouts would exceed by far.
const (
	txAttempts     = 10
	txPatience     = 30 * time.Second
	txFirstBackoff = 5 * time.Millisecond
	txMaxBackoff   = 500 * time.Millisecond
)

// inTx runs fn in a transaction, again from the start after any error that a
// repetition may cure, with jittered waits between. fn must not go on after an
// error: on Vitess, and after a deadlock, the statements that follow run
// outside the transaction. It must not keep results of an earlier run.
//
// A run may have been committed although its answer was lost, so fn must be
// idempotent: it runs again on top of its own work.
//
// Errors of fn that do not come from the database are returned as they are,
// after the rollback.
func (q *Queue) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	return q.retry(ctx, func() error { return runTx(ctx, q.db, fn) })
}

// retry runs fn until it succeeds, fails for good, or attempts or ctx end.
func (q *Queue) retry(ctx context.Context, fn func() error) error {
	pause := backoff.ExponentialBackOff{
		InitialInterval: txFirstBackoff, MaxInterval: txMaxBackoff, Multiplier: 2, RandomizationFactor: 0.9,
	}
	begun := time.Now()
	for attempt := 1; ; attempt++ {
		err := fn()
		q.metrics.countError(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				return fmt.Errorf("%w, after: %w", cause, err)
			}
			return err
		case classify(err) == classPermanent:
			q.suspect(err)
			return err
		case attempt == txAttempts, time.Since(begun) > txPatience:
			return fmt.Errorf("gave up after %d attempts: %w", attempt, err)
		}
		q.metrics.retries.Inc(1)
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return fmt.Errorf("%w, after: %w", context.Cause(ctx), err)
		}
	}
}

// runTx runs fn in one transaction. A connection that leads to a read-only
// server, or whose rollback failed, does not go back to the pool.
func runTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return txOn(ctx, conn, fn)
}

func txOn(ctx context.Context, conn *sql.Conn, fn func(*sql.Tx) error) (err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		dropIfBroken(conn, err)
		return err
	}
	committed := false
	defer func() { // also when fn panics
		if committed {
			return
		}
		if undoErr := tx.Rollback(); undoErr != nil && !errors.Is(undoErr, sql.ErrTxDone) {
			drop(conn)
			return
		}
		dropIfBroken(conn, err) // not before: the transaction holds the connection
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	committed = true
	return nil
}

func dropIfBroken(conn *sql.Conn, err error) {
	if c := classify(err); c == classFailover || c == classReconnect {
		drop(conn)
	}
}

// drop makes the pool close the connection instead of keeping it. No
// transaction may be open on it.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
