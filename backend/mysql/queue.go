package mysql

import (
	"context"
	"database/sql"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Params of [NewQueue].
type Params struct {
	// DB is the pool the queue works on. Required; [Open] makes one with the
	// right settings. The queue never closes it.
	DB *sql.DB
	// Reserve is a second pool of the same database, for PublishTx alone. Nil:
	// one or two connections are taken from DB and kept aside until Close, so
	// that callers whose transactions hold the rest of the pool are not blocked
	// by their own publishing. The queue never closes it.
	Reserve *sql.DB
	// Tenants are those that Subscribe consumes for. Publishing needs none.
	Tenants tenants.Set
	Config  Config
	Logger  *zap.Logger // nil: none
	Scope   tally.Scope // nil: none
}

// Queue implements [backend.Queue] and [backend.Admin].
type Queue struct {
	db      *sql.DB
	tenants tenants.Set
	cfg     Config
	log     *zap.Logger
	scope   tally.Scope
	metrics metrics
	hub     engine.Hub
}

type metrics struct {
	retries tally.Counter
}

// NewQueue does no I/O. It returns a [backend.FieldError] for what it refuses.
func NewQueue(p Params) (*Queue, error) {
	if p.DB == nil {
		return nil, &backend.FieldError{Field: "db", Rule: "must not be nil; mysql.Open makes one"}
	}
	cfg := p.Config.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	q := &Queue{db: p.DB, tenants: p.Tenants, cfg: cfg, log: p.Logger, scope: p.Scope}
	if q.log == nil {
		q.log = zap.NewNop()
	}
	if q.scope == nil {
		q.scope = tally.NoopScope
	}
	q.metrics.retries = q.scope.Counter("transaction_retries")
	return q, nil
}

// ready checks the server once, before the first use.
func (q *Queue) ready(ctx context.Context) error { panic("not yet") }
