package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// River's settings are those of its own benchmark, `river bench`, whose comments
// say that they beat the defaults by far (cmd/river/riverbench). Everything else
// is default, so that completions are batched.
const (
	riverFetchCooldown = 2 * time.Millisecond
	riverPollInterval  = 20 * time.Millisecond
	riverWorkers       = 2000
)

// River is github.com/riverqueue/river on PostgreSQL: another database, without
// order or partitions, and what a user would pick instead. A payload is base64
// in the JSON of a job's arguments, as encoding/json has it.
type River struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx] // does not work
}

// NewRiver uses a database of its own whole.
func NewRiver(ctx context.Context, url string) (*River, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, named(err, "river", "open")
	}
	cfg.MaxConns = mysql.DefaultMaxOpenConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, named(err, "river", "open")
	}
	r := &River{pool: pool}
	if r.insert, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: riverLog}); err != nil {
		return nil, named(errors.Join(err, r.Close()), "river", "open")
	}
	if err := r.Reset(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

var riverLog = slog.New(slog.DiscardHandler)

type riverArgs struct {
	Key     string `json:"key"`
	ID      string `json:"id"`
	Payload []byte `json:"payload"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
}

// Work does nothing.
func (*riverWorker) Work(context.Context, *river.Job[riverArgs]) error { return nil }

// Name implements [Peer].
func (r *River) Name() string { return "river" }

// Reset implements [Peer].
func (r *River) Reset(ctx context.Context) error {
	if _, err := r.pool.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; "+
		"CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, item TEXT NOT NULL)"); err != nil {
		return named(err, "river", "reset")
	}
	r.pool.Reset() // what connections know of the tables is out of date
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: riverLog})
	if err != nil {
		return named(err, "river", "reset")
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return named(err, "river", "reset")
}

// Close implements [Peer].
func (r *River) Close() error {
	r.pool.Close()
	return nil
}

func riverParams(batch []Message) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(batch))
	for i, m := range batch {
		params[i].Args = riverArgs(m)
	}
	return params
}

// Publish implements [Peer] by Insert, and by InsertManyFast for several, which
// its documentation recommends where the jobs need not come back.
func (r *River) Publish(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		if len(batch) == 1 {
			_, err := r.insert.Insert(ctx, riverArgs(batch[0]), nil)
			return err
		}
		_, err := r.insert.InsertManyFast(ctx, riverParams(batch))
		return err
	}), "river", "publish")
}

// PublishTx implements [Peer] by InsertTx and InsertManyFastTx.
func (r *River) PublishTx(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (item) VALUES ('a thing')"); err != nil {
				return err
			}
			if len(batch) == 1 {
				_, err := r.insert.InsertTx(ctx, tx, riverArgs(batch[0]), nil)
				return err
			}
			_, err := r.insert.InsertManyFastTx(ctx, tx, riverParams(batch))
			return err
		})
	}), "river", "publish in a transaction")
}

// Consume implements [Peer]. A client works from its start on, so that start and
// stop, some 10 ms, are on the clock. As in River's own benchmark a job counts
// by its event, which comes once it is completed in the database.
func (r *River) Consume(ctx context.Context, n int) (err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown:     riverFetchCooldown,
		FetchPollInterval: riverPollInterval,
		Logger:            riverLog,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
	})
	if err != nil {
		return named(err, "river", "consume")
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n, // it drops what does not fit
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer unsubscribe()
	if err := client.Start(ctx); err != nil {
		return named(err, "river", "start")
	}
	defer func() { err = errors.Join(err, named(client.Stop(ctx), "river", "stop")) }()
	for done := range n {
		select {
		case <-completed:
		case <-ctx.Done():
			return named(fmt.Errorf("%d of %d jobs: %w", done, n, ctx.Err()), "river", "consume")
		}
	}
	return nil
}

// count is for tests.
func (r *River) count(ctx context.Context, query string) (n int, err error) {
	return n, r.pool.QueryRow(ctx, query).Scan(&n)
}
