package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

const topic = "bench"

var logger = zap.NewNop() // or, with -v, what the queue has to say

// bench is a database of its own with the queue's schema.
type bench struct {
	name string
	root *sql.DB // statements of the measurement, apart from the queue's pool
	db   *sql.DB
}

func newBench(ctx context.Context) (*bench, error) {
	b, err := openBench("mq_bench_" + strconv.Itoa(os.Getpid()))
	if err != nil {
		return nil, err
	}
	if _, err := b.root.ExecContext(ctx, "CREATE DATABASE "+b.name); err != nil {
		return nil, err
	}
	return b, mysql.Migrate(ctx, b.db)
}

func openBench(database string) (*bench, error) {
	base := os.Getenv("MQ_TEST_DSN")
	if base == "" {
		return nil, fmt.Errorf("MQ_TEST_DSN is not set: run it by `make bench`, which provides a database")
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
		return nil, err
	}
	return &bench{name: database, root: root, db: db}, nil
}

func (b *bench) close() error {
	_, err := b.root.ExecContext(context.Background(), "DROP DATABASE "+b.name)
	return closeAll(err, b.db.Close, b.root.Close)
}

func closeAll(err error, closers ...func() error) error {
	for _, c := range closers {
		if e := c(); err == nil {
			err = e
		}
	}
	return err
}

func (b *bench) queue(list []tenants.ID) (*mysql.Queue, error) {
	set, err := tenants.New(list...)
	if err != nil {
		return nil, err
	}
	return mysql.NewQueue(mysql.Params{DB: b.db, Tenants: set, Logger: logger})
}

func tenantIDs(n int) []tenants.ID {
	list := make([]tenants.ID, n)
	for i := range list {
		list[i] = tenants.ID(fmt.Sprintf("tenant-%05d", i))
	}
	return list
}

func message(tenant tenants.ID, key, id string) backend.Message {
	return backend.Message{Tenant: tenant, Topic: topic, PartitionKey: key, ID: id, Payload: make([]byte, 200)}
}

// publishAll stores messages in batches, off the clock.
func publishAll(ctx context.Context, q backend.Queue, msgs []backend.Message) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for len(msgs) > 0 {
		n := min(1000, len(msgs))
		part := msgs[:n]
		msgs = msgs[n:]
		g.Go(func() error {
			_, err := q.Publish(ctx, part...)
			return err
		})
	}
	return g.Wait()
}

// consume handles n deliveries with a no-op and acknowledges them.
func consume(ctx context.Context, sub backend.Subscription, n int) error {
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	for range n {
		select {
		case d, ok := <-sub.Deliveries():
			if !ok {
				return fmt.Errorf("deliveries ended early")
			}
			wg.Go(func() {
				if err := d.Ack(ctx); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			})
		case <-time.After(time.Minute):
			return fmt.Errorf("no delivery for a minute")
		}
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// counters are the server's own.
type counters struct{ statements, rowsRead, commits float64 }

func (b *bench) counters(ctx context.Context) (c counters, err error) {
	rows, err := b.root.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit', 'Handler_read_key', 'Handler_read_next', 'Handler_read_first', 'Handler_read_rnd_next', 'Handler_read_last', 'Handler_read_prev')")
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		if err := rows.Scan(&name, &value); err != nil {
			return c, err
		}
		switch name {
		case "Questions":
			c.statements = value
		case "Com_commit":
			c.commits = value
		default:
			c.rowsRead += value
		}
	}
	return c, rows.Err()
}

// measure runs work and prints its rate and its cost a message.
func (b *bench) measure(ctx context.Context, n int, work func() error) error {
	before, err := b.counters(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := work(); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := b.counters(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  %8.0f msg/s   %.3f statements, %.2f rows read, %.4f commits a message   (%d in %v)\n",
		float64(n)/took.Seconds(), (after.statements-before.statements-1)/float64(n), (after.rowsRead-before.rowsRead)/float64(n),
		(after.commits-before.commits)/float64(n), n, took.Round(time.Millisecond))
	return nil
}

// latencies collects times in microseconds, up to a minute.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies { return &latencies{h: hdrhistogram.New(1, 60_000_000, 3)} }

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(min(max(d.Microseconds(), 1), 60_000_000)) // within its range
}

func (l *latencies) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.h.ValueAtQuantile(q)) * time.Microsecond
}

func (l *latencies) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v (%d messages)",
		l.quantile(50), l.quantile(99), l.quantile(100), l.h.TotalCount())
}
