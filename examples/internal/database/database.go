// Package database is what the example services share about their own tables:
// migrations, and transactions that publish (an outbox).
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
)

// NowMillis is the database's clock in epoch milliseconds: every process reads
// the same one.
const NowMillis = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"

// Migrate applies the pending versions of a service's tables, one process at a
// time. Name is the service's: it keeps its versions in the table name_schema.
func Migrate(ctx context.Context, db *sql.DB, name string, versions fs.FS) error {
	p, err := goose.NewProvider(goose.DialectMySQL, db, versions,
		goose.WithTableName(name+"_schema"), goose.WithSessionLocker(namedLock(name)), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	return nil
}

// namedLock keeps the second of two processes that start together waiting.
type namedLock string

func (l namedLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var locked sql.NullBool
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT(LEFT(DATABASE(), 32), '.', ?), 30)", string(l)).Scan(&locked)
	if err == nil && !locked.Bool {
		err = fmt.Errorf("somebody else has been migrating %s for 30 s", string(l))
	}
	return err
}

func (l namedLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(CONCAT(LEFT(DATABASE(), 32), '.', ?))", string(l))
	return err
}

// InTx runs fn in a transaction, and again from the start when the database
// gave it up in favour of another one. fn must keep nothing of an earlier run.
func InTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := runTx(ctx, db, fn)
		if err != nil && !IsError(err, lockDeadlock, lockWaitTimeout, snapshotChanged) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithMaxTries(10), backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.9,
	}))
	return err
}

func runTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Error numbers of the server.
const (
	snapshotChanged = 1020 // MariaDB with innodb_snapshot_isolation
	DuplicateKey    = 1062
	lockWaitTimeout = 1205
	lockDeadlock    = 1213
)

// IsError tells whether err has one of the server's error numbers.
func IsError(err error, numbers ...uint16) bool {
	me, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	for _, n := range numbers {
		if me.Number == n {
			return true
		}
	}
	return false
}
