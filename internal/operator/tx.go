package operator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-sql-driver/mysql"
)

// txAttempts bounds the runs of a transaction that meets others. An operator who
// waits in vain is told by what, rather than made to wait longer.
const txAttempts = 5

// Numbers of errors, by the servers' names without the prefix ER_.
const (
	errCheckread       = 1020 // MariaDB with innodb_snapshot_isolation: the row changed after the snapshot
	errParse           = 1064
	errNoSuchTable     = 1146
	errLockWaitTimeout = 1205
	errLockDeadlock    = 1213
	errUnknown         = 1105 // Vitess, with the reason in the text
	errInterrupted     = 1317 // Vitess has ended the transaction, which took too long
)

// isConflict tells whether another run may cure an error.
func isConflict(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch e.Number {
	case errCheckread, errLockWaitTimeout, errLockDeadlock, errInterrupted:
		return true
	}
	return e.Number == errUnknown && strings.Contains(e.Message, "code = Aborted")
}

// inTx runs fn in a transaction, again from the start after a conflict. fn must
// be idempotent and keep no results of an earlier run, nor go on after an error:
// once Vitess has lost the transaction, what follows runs outside of it.
func (o *Operator) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	pause := backoff.ExponentialBackOff{
		InitialInterval: 10 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.9,
	}
	for attempt := 1; ; attempt++ {
		err := o.runTx(ctx, fn)
		switch {
		case !isConflict(err):
			return err
		case attempt == txAttempts:
			return fmt.Errorf("gave up after %d attempts, look for a transaction that does not end with `mqctl doctor`: %w", attempt, err)
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return fmt.Errorf("%w, after: %w", context.Cause(ctx), err)
		}
	}
}

func (o *Operator) runTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
