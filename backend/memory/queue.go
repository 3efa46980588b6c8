package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Params of [NewQueue].
type Params struct {
	// Tenants are those that subscriptions serve. A queue that only publishes
	// needs none.
	Tenants tenants.Set
	Config  Config
	Logger  *zap.Logger // nil: none
	Scope   tally.Scope // nil: none
}

// Queue implements [backend.Queue] and [backend.Admin].
type Queue struct {
	tenants tenants.Set
	config  Config
	logger  *zap.Logger
	scope   tally.Scope
	metrics metrics
	hub     engine.Hub
	tables  *tables

	closed  atomic.Bool
	severed atomic.Bool // by tests: to this queue the tables are out of reach

	// life orders Subscribe and Close. It is taken before tables.mu.
	life    sync.Mutex
	closing bool // no new subscriptions
	subs    []*engine.Subscription
}

type metrics struct {
	published, duplicates, groupsExpired tally.Counter
}

var (
	_ backend.Queue = (*Queue)(nil)
	_ backend.Admin = (*Queue)(nil)
)

// NewQueue returns an empty queue. It starts no goroutine. The error is a
// [backend.FieldError].
func NewQueue(p Params) (*Queue, error) { return open(p, newTables()) }

// open makes a queue on tables that it may share with others, as processes
// share a database.
func open(p Params, tables *tables) (*Queue, error) {
	config := p.Config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	q := &Queue{tenants: p.Tenants, config: config, logger: p.Logger, scope: p.Scope, tables: tables}
	if q.logger == nil {
		q.logger = zap.NewNop()
	}
	if q.scope == nil {
		q.scope = tally.NoopScope
	}
	q.metrics = metrics{
		published:     q.scope.Counter("published"),
		duplicates:    q.scope.Counter("publish_duplicates"),
		groupsExpired: q.scope.Counter("groups_expired"),
	}
	return q, nil
}

// Subscribe implements [backend.Subscriber]. It returns a [backend.FieldError]
// for a refused topic or configuration, or if the queue has no tenants, and
// [backend.ErrClosed].
func (q *Queue) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	cfg = cfg.WithDefaults()
	if cfg.SubscriberName == "" {
		cfg.SubscriberName = subscriberName()
	}
	if err := cfg.Validate(topic); err != nil {
		return nil, err
	}
	if len(q.tenants.IDs()) == 0 {
		return nil, &backend.FieldError{Field: "tenants", Rule: "a subscriber needs at least one; set MQ_TENANTS or Params.Tenants"}
	}

	q.life.Lock()
	defer q.life.Unlock()
	if q.closing {
		return nil, fmt.Errorf("subscribe group %q to topic %q: %w", cfg.Group, topic, backend.ErrClosed)
	}
	sub, err := engine.Start(ctx, engine.Options{
		Topic:   topic,
		Config:  cfg,
		Tenants: q.tenants,
		Store:   q.newStore(topic, cfg),
		Hub:     &q.hub,
		Logger:  q.logger,
		Scope:   q.scope,
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe group %q to topic %q: %w", cfg.Group, topic, err)
	}
	q.subs = append(slices.DeleteFunc(q.subs, stopped), sub)
	return sub, nil
}

// subscriberName tells operators the process, and no two subscriptions share it.
func subscriberName() string {
	host, err := os.Hostname()
	if err != nil || backend.CheckSubscriberName(host) != nil {
		host = "localhost"
	}
	const longest = 200 // leaves room for the rest
	return fmt.Sprintf("%s-%d-%s", host[:min(len(host), longest)], os.Getpid(), rand.Text()[:8])
}

func stopped(s *engine.Subscription) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Close implements [backend.Queue]. Handlers may publish until the last
// subscription has stopped. Those that were stopped before are not reported.
func (q *Queue) Close(ctx context.Context) error {
	q.life.Lock()
	q.closing = true
	q.subs = slices.DeleteFunc(q.subs, stopped)
	subs := slices.Clone(q.subs)
	q.life.Unlock()

	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, s := range subs {
		wg.Go(func() { errs[i] = s.Stop(ctx) })
	}
	wg.Wait()
	q.closed.Store(true)
	return errors.Join(errs...)
}

var errSevered = errors.New("the tables are out of reach")

// check precedes what a caller asks for.
func (q *Queue) check(ctx context.Context) error {
	switch {
	case q.closed.Load():
		return backend.ErrClosed
	case q.severed.Load():
		return errSevered
	}
	return ctx.Err()
}
