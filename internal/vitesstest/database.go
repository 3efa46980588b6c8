package vitesstest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// server is how a tablet reaches its database server.
type server struct{ host, port, user, password string }

// createDatabase makes the tablet's database.
func createDatabase(ctx context.Context, dsn string) (s server, err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return server{}, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return server{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+Keyspace+" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		return server{}, fmt.Errorf("create a shard's database: %w", err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	return server{host, port, cfg.User, cfg.Passwd}, err
}

// awaitTables waits until vtgate serves the tables: it learns of them from the tablets.
func awaitTables(ctx context.Context, dsn string) (err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	cfg.Logger = &mysql.NopLogger{} // the refusals until then are expected
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// A few tenants, so that several shards have to answer.
		_, err := db.ExecContext(ctx, "SELECT 1 FROM queue_offsets WHERE tenant IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the tables behind vtgate: %w, last %w", ctx.Err(), err)
		}
	}
}

// ShardOf returns the index in [Cluster.Shards] of the one that owns a tenant. db leads to vtgate.
func (c *Cluster) ShardOf(ctx context.Context, db *sql.DB, tenant string) (int, error) {
	var n int
	var keyspace, shard, query string
	// What vtgate sends, and where to.
	row := db.QueryRowContext(ctx, "VEXPLAIN QUERIES SELECT 1 FROM queue_offsets WHERE tenant = ?", tenant)
	if err := row.Scan(&n, &keyspace, &shard, &query); err != nil {
		return 0, fmt.Errorf("ask vtgate for the shard of tenant %q: %w", tenant, err)
	}
	for i, s := range c.Shards {
		if s.Name == shard {
			return i, nil
		}
	}
	return 0, fmt.Errorf("tenant %q is on shard %q, which the cluster has not", tenant, shard)
}
