package memory

import (
	"cmp"
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
	// TenantMetrics gives the first so many of Tenants, in order, a tag "tenant" on
	// what is counted of messages, and on the lag; all others share "other". Every
	// tenant tagged makes about ten series a topic and group. Default 0: no such
	// tag. At most 1,000.
	TenantMetrics int
}

// Queue implements [backend.Queue], [backend.Admin] and
// [backend.HealthReporter].
type Queue struct {
	tenants tenants.Set
	config  Config
	logger  *zap.Logger
	scope   tally.Scope
	tagged  int // tenants, in metrics
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
	published     *engine.Published
	groupsExpired tally.Counter
}

var (
	_ backend.Queue          = (*Queue)(nil)
	_ backend.Admin          = (*Queue)(nil)
	_ backend.HealthReporter = (*Queue)(nil)
)

// NewQueue returns an empty queue. It starts no goroutine. The error is a
// [backend.FieldError].
func NewQueue(p Params) (*Queue, error) { return open(p, newTables()) }

// open makes a queue on tables that it may share with others, as processes
// share a database.
func open(p Params, tables *tables) (*Queue, error) {
	config := p.Config.withDefaults()
	err := cmp.Or(config.validate(), checkRange("tenant metrics", p.TenantMetrics, 0, backend.MaxTenantMetrics))
	if err != nil {
		return nil, err
	}
	q := &Queue{tenants: p.Tenants, config: config, logger: p.Logger, scope: p.Scope, tagged: p.TenantMetrics, tables: tables}
	if q.logger == nil {
		q.logger = zap.NewNop()
	}
	q.logger = engine.Quiet(q.logger)
	if q.scope == nil {
		q.scope = tally.NoopScope
	}
	q.metrics = metrics{
		published:     engine.NewPublished(q.scope, p.Tenants, p.TenantMetrics),
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
		Topic:         topic,
		Config:        cfg,
		Tenants:       q.tenants,
		Store:         q.newStore(topic, cfg),
		Hub:           &q.hub,
		Logger:        q.logger,
		Scope:         q.scope,
		TenantMetrics: q.tagged,
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

// Health implements [backend.HealthReporter]: the tables are always there.
func (q *Queue) Health(context.Context) backend.Health {
	q.life.Lock()
	subs := slices.Clone(q.subs)
	q.life.Unlock()
	h := backend.Health{Subscriptions: engine.Health(subs)}
	if q.closed.Load() {
		h.Store = backend.ErrClosed
	}
	return h
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
