// Package database is what the example services share about their own tables:
// migrations, and transactions that publish (an outbox).
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"go.uber.org/fx"

	queuemysql "github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/mqfx"
)

// NowMillis is the database's clock in epoch milliseconds: every process reads
// the same one.
const NowMillis = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"

// Open makes a service's own pool on the database of its queue. Its tables are
// migrated at start, if mq.migrate says so, and the pool is closed at stop.
func Open(lc fx.Lifecycle, cfg mqfx.Config, name string, versions fs.FS) (*sql.DB, error) {
	var opts []queuemysql.OpenOption
	if cfg.ServerIsolation {
		opts = append(opts, queuemysql.ServerIsolation())
	}
	db, err := queuemysql.Open(string(cfg.DSN), opts...)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			if !cfg.Migrate {
				return nil
			}
			return Migrate(ctx, db, name, versions)
		},
		OnStop: func(context.Context) error { return db.Close() },
	})
	return db, nil
}

// Migrate applies the pending versions of a service's tables, one process at a
// time. They are in the folder migrations; which of them are applied is kept in
// the table name_schema.
func Migrate(ctx context.Context, db *sql.DB, name string, versions fs.FS) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrate %s: %w", name, err)
		}
	}()
	directory, err := fs.Sub(versions, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectMySQL, db, directory, goose.WithTableName(name+"_schema"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	// Goose looks at its table before it takes a lock of its own, and so sees one
	// that another process has only half made.
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	const lock = "CONCAT(LEFT(DATABASE(), 32), '.', ?)"
	var locked sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lock+", 30)", name).Scan(&locked); err != nil {
		return err
	}
	if !locked.Bool {
		return errors.New("another process has held the migration's lock for 30 s")
	}
	_, err = p.Up(ctx)
	// Even when ctx has ended: the connection goes back to the pool.
	_, unlockErr := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+lock+")", name)
	return errors.Join(err, unlockErr)
}

// InTx runs fn in a transaction, and again from the start when the database
// gave it up in favour of another one, or PublishTx says so. fn must keep nothing
// of an earlier run.
func InTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := runTx(ctx, db, fn)
		if err != nil && !errors.Is(err, queuemysql.ErrRetryTransaction) && !IsError(err, lockDeadlock, lockWaitTimeout, snapshotChanged) {
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
	return ok && slices.Contains(numbers, me.Number)
}
