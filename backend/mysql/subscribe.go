package mysql

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// Subscribe implements [backend.Subscriber]. It returns a [backend.FieldError]
// for a refused topic or configuration, or if the queue has no tenants;
// [backend.ErrClosed]; and the errors of [Queue.Verify].
func (q *Queue) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	ctx, leave, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if cfg.SubscriberName == "" {
		cfg.SubscriberName = defaultSubscriberName()
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(topic); err != nil {
		return nil, err
	}
	if len(q.tenants.IDs()) == 0 {
		return nil, &backend.FieldError{Field: "tenants", Rule: "a subscriber needs at least one; set MQ_TENANTS or Params.Tenants"}
	}
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	sub, err := engine.Start(ctx, engine.Options{
		Topic: topic, Config: cfg, Tenants: q.tenants, Store: newStore(q, topic, cfg, mathrand.Uint64()),
		Hub: &q.hub, Logger: q.log, Scope: q.scope, TenantMetrics: q.tagged,
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe group %q to topic %q: %w", cfg.Group, topic, err)
	}
	if !q.track(sub) {
		return nil, errors.Join(backend.ErrClosed, sub.Stop(ctx))
	}
	return sub, nil
}

// track remembers a subscription until it has stopped. It refuses once the
// queue is closing.
func (q *Queue) track(sub *engine.Subscription) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return false
	}
	q.subs[sub] = struct{}{}
	q.watchers.Go(func() {
		<-sub.Done()
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.subs, sub)
	})
	return true
}

// subscriptions are those that have not stopped.
func (q *Queue) subscriptions() []*engine.Subscription {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.subs))
}

// stopSubscriptions stops all of them at once: they share ctx.
func (q *Queue) stopSubscriptions(ctx context.Context) error {
	subs := q.subscriptions()
	errs := make([]error, len(subs))
	var stops sync.WaitGroup
	for i, sub := range subs {
		stops.Go(func() { errs[i] = sub.Stop(ctx) })
	}
	stops.Wait()
	q.watchers.Wait()
	return errors.Join(errs...)
}

// defaultSubscriberName is unique and tells an operator where to look.
func defaultSubscriberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, host)
	return fmt.Sprintf("%.200s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
