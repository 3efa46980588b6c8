package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	topic = "bench"
	group = "bench"
)

// ownTable is a table of the caller's own, for publish-tx.
const ownTable = "CREATE TABLE bench_request (id VARCHAR(255) NOT NULL PRIMARY KEY, note VARCHAR(255) NOT NULL)"

var tables = []string{
	"queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats", "bench_request",
}

// bench is a database of its own with the queue's schema, its server, and the
// systems measured beside the queue.
type bench struct {
	database string
	root     *sql.DB // statements of the measurement, apart from the queue's pool
	db       *sql.DB // the queue's
	server   *process
	reading  counters // what it costs to read the counters
	rivals   rivals
	rounds   int
	log      *zap.Logger
}

func newBench(ctx context.Context, rounds int, log *zap.Logger) (_ *bench, err error) {
	b, err := openBench("mq_bench_"+strconv.Itoa(os.Getpid()), log)
	if err != nil {
		return nil, err
	}
	b.rounds = rounds
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	for _, f := range []func() error{
		func() error { return b.exec(ctx, "CREATE DATABASE "+b.database) },
		func() error { return mysql.Migrate(ctx, b.db) },
		func() error { return b.exec(ctx, "USE "+b.database, ownTable) },
		func() (err error) { b.server, err = b.findServer(ctx); return err },
		func() (err error) { b.reading, err = b.calibrate(ctx); return err },
	} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// openBench connects to a database that is there, or will be.
func openBench(database string, log *zap.Logger) (*bench, error) {
	base := os.Getenv("MQ_TEST_DSN")
	if base == "" {
		return nil, errors.New("MQ_TEST_DSN is not set: run it by `make bench`, which provides a database")
	}
	cfg, err := driver.ParseDSN(base)
	if err != nil {
		return nil, fmt.Errorf("MQ_TEST_DSN: %w", err)
	}
	root, err := sql.Open("mysql", base)
	if err != nil {
		return nil, err
	}
	cfg.DBName = database
	db, err := mysql.Open(cfg.FormatDSN())
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &bench{database: database, root: root, db: db, log: log, rivals: rivals{dsn: base}}, nil
}

func (b *bench) close() error {
	return errors.Join(
		b.rivals.close(),
		b.exec(context.Background(), "DROP DATABASE IF EXISTS "+b.database),
		b.db.Close(), b.root.Close(),
	)
}

// exec runs statements on one connection apart from the queue's.
func (b *bench) exec(ctx context.Context, statements ...string) error {
	conn, err := b.root.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// short tells a try from a full run.
func (b *bench) short() bool { return b.rounds < fullRounds }

// span is d, or a fraction of it where the run is a try.
func (b *bench) span(d time.Duration) time.Duration {
	if b.short() {
		return d / 4
	}
	return d
}

// open makes a queue on empty tables.
func (b *bench) open(ctx context.Context, list []tenants.ID) (*mysql.Queue, error) {
	for _, table := range tables {
		if err := b.exec(ctx, "TRUNCATE TABLE "+b.database+"."+table); err != nil {
			return nil, err
		}
	}
	q, err := b.queue(list)
	if err != nil {
		return nil, err
	}
	return q, q.Verify(ctx)
}

func (b *bench) queue(list []tenants.ID) (*mysql.Queue, error) {
	set, err := tenants.New(list...)
	if err != nil {
		return nil, err
	}
	return mysql.NewQueue(mysql.Params{DB: b.db, Tenants: set, Logger: b.log})
}

// with runs f with a queue on empty tables.
func (b *bench) with(ctx context.Context, list []tenants.ID, f func(q *mysql.Queue) error) error {
	q, err := b.open(ctx, list)
	if err != nil {
		return err
	}
	return errors.Join(f(q), ending(ctx, q.Close))
}

// subscribed runs f with a subscription, of group unless cfg has another.
func subscribed(ctx context.Context, q backend.Queue, cfg backend.SubscriptionConfig, f func(sub backend.Subscription) error) error {
	if cfg.Group == "" {
		cfg.Group = group
	}
	sub, err := q.Subscribe(ctx, topic, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(sub), ending(ctx, sub.Stop))
}

// ending stops something in time even if f has left deliveries unsettled or ctx
// has ended.
func ending(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return stop(ctx)
}

func tenantIDs(n int) []tenants.ID {
	list := make([]tenants.ID, n)
	for i := range list {
		list[i] = tenants.ID(fmt.Sprintf("tenant-%05d", i))
	}
	return list
}
