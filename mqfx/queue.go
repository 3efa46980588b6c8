package mqfx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/mqfx/internal/harness"
	"github.com/tenantmq/tenantmq/tenants"
)

// ErrNotStarted is returned by the queue and the publisher until the
// application's start has come to the module. Publish in an OnStart hook of a
// constructor that takes the publisher, or later.
var ErrNotStarted = errors.New("the queue has not started: use it in an OnStart hook or later, not in a constructor")

type queueParams struct {
	fx.In

	Config    Config
	Tenants   tenants.Set
	Telemetry telemetry
	DB        *givenDB        `optional:"true"`
	Harness   *harness.Memory `optional:"true"`
	Lifecycle fx.Lifecycle
	Shutdown  fx.Shutdowner

	Given *givenConfig `optional:"true"`
	Files *givenFiles  `optional:"true"`
}

// ExitFault is the exit code of an application that the module has shut down
// because the queue's tables were dropped, or changed by another version, while
// it ran. Nothing else makes the module shut an application down: a database
// that is away or slow is waited for.
const ExitFault = 3

// queue stands in for a backend until the application starts. A constructor
// that opened one would leave it behind, a connection pool and its goroutine,
// when another constructor fails: then no hook ever runs.
type queue struct {
	p        queueParams
	opened   atomic.Pointer[opened]
	started  atomic.Bool // the handlers have
	stopping atomic.Bool // the application stops
}

// opened is a backend and how to close it.
type opened struct {
	adminQueue
	close func(context.Context) error // once
}

type adminQueue interface {
	backend.Queue
	backend.Admin
	backend.HealthReporter
}

var _ adminQueue = (*queue)(nil)

func newQueue(p queueParams) *queue {
	q := &queue{p: p}
	p.Lifecycle.Append(fx.StartStopHook(q.start, q.stop))
	return q
}

// start leaves nothing behind when it fails: fx runs no OnStop for it.
func (q *queue) start(ctx context.Context) error {
	o, err := q.open(ctx)
	if err == nil {
		err = ctx.Err() // fx takes an end of ctx for a failed start, whatever this returns
	}
	if err != nil {
		if o != nil {
			err = errors.Join(err, rollback(ctx, o.close))
		}
		return err
	}
	q.opened.Store(o)
	return nil
}

func (q *queue) open(ctx context.Context) (*opened, error) {
	if q.p.Config.Backend == BackendMemory {
		return q.openMemory()
	}
	return q.openMySQL(ctx)
}

func (q *queue) openMemory() (*opened, error) {
	m, err := memory.NewQueue(memory.Params{
		Tenants: q.p.Tenants, Logger: q.p.Telemetry.log, Scope: q.p.Telemetry.scope,
		TenantMetrics: q.p.Config.Metrics.Tenants,
		Config:        memory.Config{MaxPayload: q.p.Config.Publish.MaxPayload, MaxMetadata: q.p.Config.Publish.MaxMetadata},
	})
	if err != nil {
		return nil, err
	}
	if q.p.Harness != nil {
		q.p.Harness.Opened(m)
	}
	return newOpened(m, m.Close), nil
}

func (q *queue) openMySQL(ctx context.Context) (*opened, error) {
	pools, err := q.database()
	if err != nil {
		return nil, err
	}
	m, err := mysql.NewQueue(mysql.Params{
		DB: pools.db, Reserve: pools.reserve, ReserveConns: q.p.Config.Pool.Reserve,
		Tenants: q.p.Tenants, Config: q.p.Config.mysql(), Logger: q.p.Telemetry.log, Scope: q.p.Telemetry.scope,
		TenantMetrics: q.p.Config.Metrics.Tenants, OnFault: q.fault,
	})
	if err != nil {
		return nil, errors.Join(err, pools.close())
	}
	o := newOpened(m, func(ctx context.Context) error { return errors.Join(m.Close(ctx), pools.close()) })
	if q.p.Config.Migrate {
		if err := mysql.Migrate(ctx, pools.db); err != nil {
			return o, q.explain(err)
		}
	}
	if err := m.Verify(ctx); err != nil {
		return o, q.explain(err)
	}
	return o, nil
}

func (q *queue) fault(error) { // the backend has logged it
	_ = q.p.Shutdown.Shutdown(fx.ExitCode(ExitFault)) // shutting down already
}

func newOpened(q adminQueue, closeAll func(context.Context) error) *opened {
	o := &opened{adminQueue: q}
	var once sync.Once
	var err error
	o.close = func(ctx context.Context) error {
		once.Do(func() { err = closeAll(ctx) })
		return err
	}
	return o
}

// pools are what the queue works on; those that are ours are to be closed.
type pools struct {
	db, reserve *sql.DB // no reserve: some of db are kept aside
	ours        bool
}

func (p pools) close() error {
	if !p.ours {
		return nil
	}
	return errors.Join(p.db.Close(), p.reserve.Close())
}

func (q *queue) database() (pools, error) {
	if q.p.DB != nil {
		return pools{db: q.p.DB.DB}, nil
	}
	if q.p.Config.DSN == "" {
		return pools{}, &backend.FieldError{
			Field: "mq.dsn", Rule: fmt.Sprintf("must not be empty: set it, mq.dsn_file or %s, hand in a handle by mqfx.WithDB, "+
				"or set mq.backend to %s%s", EnvDSN, BackendMemory, q.withoutFiles()),
		}
	}
	db, err := q.openPool(q.p.Config.Pool.MaxOpen)
	if err != nil {
		return pools{}, err
	}
	reserve, err := q.openPool(q.p.Config.Pool.Reserve)
	if err != nil {
		return pools{}, errors.Join(err, db.Close())
	}
	return pools{db: db, reserve: reserve, ours: true}, nil
}

func (q *queue) openPool(size int) (*sql.DB, error) {
	options := []mysql.OpenOption{mysql.LogTo(q.p.Telemetry.log)}
	if q.p.Config.ServerIsolation {
		options = append(options, mysql.ServerIsolation())
	}
	if q.p.Config.TLSCAFile != "" {
		options = append(options, mysql.CAFile(q.p.Config.TLSCAFile))
	}
	db, err := q.p.Config.DSN.open(options...)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxLifetime(q.p.Config.Pool.MaxLifetime)
	return db, nil
}

// explain adds the key to an error of the database, and what to do about it
// where the backend cannot know.
func (q *queue) explain(err error) error {
	remedy := fmt.Sprintf("; is the server up, and does mq.dsn (or mq.dsn_file, %s) name it and a user it knows?", EnvDSN)
	if q.p.DB != nil {
		remedy = "; is the server up, and was the handle opened for it and a user it knows?"
	}
	_, onVitess := errors.AsType[*mysql.VitessError](err)
	switch {
	case onVitess:
		remedy = ""
	case errors.Is(err, mysql.ErrSchemaMissing), errors.Is(err, mysql.ErrSchemaOlder):
		remedy = "; or set mq.migrate to true"
		if q.p.Config.ExternalSchema {
			remedy = ""
		}
	case errors.Is(err, mysql.ErrIsolation), errors.Is(err, mysql.ErrServerSettings), errors.Is(err, mysql.ErrSchemaNewer):
		remedy = ""
	}
	return fmt.Errorf("%v: %w%s%s", q, err, remedy, q.withoutFiles())
}

// withoutFiles says where no configuration file was found: a service that is run
// from another directory has its defaults, and nothing else tells.
func (q *queue) withoutFiles() string {
	if q.p.Given != nil || q.p.Files != nil || q.p.Harness != nil {
		return ""
	}
	files, err := process{args: os.Args[1:], lookup: os.LookupEnv}.files()
	if err != nil || len(files) > 0 {
		return ""
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "the working directory"
	}
	return fmt.Sprintf("; no configuration was read: there is no %s in %s, and neither -config nor %s names a file", BaseFile, dir, EnvConfig)
}

// stop returns before ctx ends, so that hooks after it still run.
func (q *queue) stop(ctx context.Context) error {
	o := q.opened.Load()
	if o == nil {
		return nil
	}
	ctx, cancel := endEarly(ctx, reserve(ctx))
	defer cancel()
	if err := o.close(ctx); err != nil {
		return fmt.Errorf("close the queue: %w", err)
	}
	return nil
}

// String names what the queue works on.
func (q *queue) String() string {
	switch {
	case q.p.Config.Backend == BackendMemory:
		return "this process"
	case q.p.DB != nil:
		return "handle of mqfx.WithDB"
	}
	return "mq.dsn " + q.p.Config.DSN.String()
}

func (q *queue) ready() (adminQueue, error) {
	if o := q.opened.Load(); o != nil {
		return o.adminQueue, nil
	}
	return nil, ErrNotStarted
}

// The rest passes every call on to the backend.

func (q *queue) Publish(ctx context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	o, err := q.ready()
	if err != nil {
		return nil, err
	}
	return o.Publish(ctx, msgs...)
}

func (q *queue) PublishTx(ctx context.Context, tx *sql.Tx, msgs ...backend.Message) ([]backend.Receipt, error) {
	o, err := q.ready()
	if err != nil {
		return nil, err
	}
	return o.PublishTx(ctx, tx, msgs...)
}

func (q *queue) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	o, err := q.ready()
	if err != nil {
		return nil, err
	}
	return o.Subscribe(ctx, topic, cfg)
}

// Close closes the backend before the application stops.
func (q *queue) Close(ctx context.Context) error {
	if o := q.opened.Load(); o != nil {
		return o.Close(ctx)
	}
	return nil
}

func (q *queue) Pause(ctx context.Context, tenant tenants.ID, topic, group string) error {
	o, err := q.ready()
	if err != nil {
		return err
	}
	return o.Pause(ctx, tenant, topic, group)
}

func (q *queue) Resume(ctx context.Context, tenant tenants.ID, topic, group string) error {
	o, err := q.ready()
	if err != nil {
		return err
	}
	return o.Resume(ctx, tenant, topic, group)
}

func (q *queue) Redrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	o, err := q.ready()
	if err != nil {
		return err
	}
	return o.Redrive(ctx, tenant, topic, partitionKey, id)
}

func (q *queue) DropGroup(ctx context.Context, tenant tenants.ID, topic, group string) error {
	o, err := q.ready()
	if err != nil {
		return err
	}
	return o.DropGroup(ctx, tenant, topic, group)
}

// Health says that the store is away until the application has started.
func (q *queue) Health(ctx context.Context) backend.Health {
	o, err := q.ready()
	if err != nil {
		return backend.Health{Store: err}
	}
	return o.Health(ctx)
}
