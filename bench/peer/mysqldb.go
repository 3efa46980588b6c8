package peer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// mysqlDB is a database of a peer's own on the server that is measured, used by
// a pool with the settings of the queue's.
type mysqlDB struct {
	*sql.DB
	root *sql.DB // creates and drops it
	name string
}

// newMySQL takes the server from a DSN, whatever database that names.
func newMySQL(ctx context.Context, dsn, system string) (*mysqlDB, error) {
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	cfg.DBName = ""
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	cfg.DBName = fmt.Sprintf("mq_peer_%s_%d", system, os.Getpid())
	db, err := mysql.Open(cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	m := &mysqlDB{DB: db, root: sql.OpenDB(connector), name: cfg.DBName}
	if err := m.reset(ctx); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// callersTable is what a caller's own transaction writes to.
const callersTable = "CREATE TABLE orders (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, item VARCHAR(64) NOT NULL)"

const insertOrder = "INSERT INTO orders (item) VALUES ('a thing')"

// reset makes the database anew, with the caller's table. Connections stay open
// and find the new one by its name.
func (m *mysqlDB) reset(ctx context.Context) error {
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + m.name, "CREATE DATABASE " + m.name} {
		if _, err := m.root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	_, err := m.ExecContext(ctx, callersTable)
	return err
}

// inTx runs work in a transaction of the caller's, beside a row of his own.
func (m *mysqlDB) inTx(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := m.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once committed
	if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// count is for tests and for knowing when all is settled.
func (m *mysqlDB) count(ctx context.Context, query string, args ...any) (n int, err error) {
	return n, m.QueryRowContext(ctx, query, args...).Scan(&n)
}

func (m *mysqlDB) close() error {
	_, err := m.root.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+m.name)
	return errors.Join(err, m.Close(), m.root.Close())
}
