package mqfx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/tenants"
)

type runParams struct {
	fx.In

	Config     Config
	Tenants    tenants.Set
	Telemetry  telemetry
	Queue      backend.Queue // as the application decorates it
	Opened     *queue
	Handlers   []consume.Handler    `group:"mqfx.handlers"`
	Middleware []consume.Middleware `group:"mqfx.middleware"`
	Traces     traces
	Lifecycle  fx.Lifecycle
}

// run makes every application start its handlers. Its hook comes after those of
// everything the handlers and the queue depend on, so it starts after them and
// stops before them.
func run(p runParams) error {
	if len(p.Handlers) > 0 && p.Tenants.Len() == 0 {
		return &backend.FieldError{
			Field: tenants.EnvVar, Value: `""`,
			Rule: fmt.Sprintf("lists no tenant, so the handlers have nobody to serve: set it to those of this process, as in %s=docs,search, "+
				"or hand them in by mqfx.WithTenants", tenants.EnvVar),
		}
	}
	r, err := newRunners(p)
	if err != nil {
		return err
	}
	p.Lifecycle.Append(fx.StartStopHook(r.start, r.stop))
	return nil
}

// runners drives the handlers, a runner for each topic, since topics have
// configurations of their own.
type runners struct {
	p       runParams
	topics  []string          // in order
	byTopic []*consume.Runner // in that of topics
}

func newRunners(p runParams) (*runners, error) {
	topics := make(map[string][]consume.Handler)
	for _, h := range p.Handlers {
		if v := reflect.ValueOf(h); h == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("mqfx.Handle: a constructor returned a nil handler of type %T; return an error or do not list it", h)
		}
		topic := h.Subscription().Topic
		topics[topic] = append(topics[topic], h)
	}
	r := &runners{p: p, topics: slices.Sorted(maps.Keys(topics))}
	middleware := append(p.Traces.middleware(), consume.Recover())
	middleware = append(middleware, p.Middleware...)
	var errs []error
	for _, topic := range r.topics {
		topicConfig := p.Config.For(topic)
		defaults, err := topicConfig.settings()
		if err != nil {
			return nil, err
		}
		runner, err := consume.NewRunner(consume.Params{
			Subscriber: p.Queue, Handlers: topics[topic], Middleware: middleware, Defaults: defaults, HandlerTimeout: topicConfig.HandlerTimeout,
			Logger: p.Telemetry.log, Scope: p.Telemetry.scope,
		})
		errs = append(errs, err)
		r.byTopic = append(r.byTopic, runner)
	}
	return r, errors.Join(errs...)
}

// start subscribes all handlers or none. A failure closes the queue, too: when
// ctx has ended, fx calls no OnStop at all.
func (r *runners) start(ctx context.Context) error {
	var err error
	for _, runner := range r.byTopic {
		if err = runner.Start(ctx); err != nil {
			break
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(err, rollback(ctx, r.stopAll), rollback(ctx, r.p.Opened.stop))
	}
	r.p.Opened.started.Store(true)
	r.p.Telemetry.log.Info("queue started",
		zap.String("backend", r.p.Config.Backend), zap.Stringer("stored_in", r.p.Opened), zap.Int("handlers", len(r.p.Handlers)),
		zap.Int("tenants", r.p.Tenants.Len()))
	for _, setting := range r.p.Config.Unused(r.topics, r.p.Tenants) {
		r.p.Telemetry.log.Warn("setting of no use to this process", zap.String("setting", setting))
	}
	return nil
}

// stop drains within what fx's deadline leaves, so that the hooks of all that
// handlers depend on still run.
func (r *runners) stop(ctx context.Context) error {
	left := reserve(ctx)
	early, cancel := endEarly(ctx, left)
	defer cancel()
	drain, cancel := context.WithTimeoutCause(early, r.p.Config.DrainTimeout,
		fmt.Errorf("mq.drain_timeout %v is over", r.p.Config.DrainTimeout))
	defer cancel()

	r.p.Opened.stopping.Store(true)
	started := time.Now()
	err := r.stopAll(drain)
	if err == nil {
		r.p.Telemetry.log.Info("handlers stopped", zap.Duration("took", time.Since(started)))
		return nil
	}
	// Their contexts have just ended; those that heed it return in a moment.
	grace, cancel := endEarly(ctx, left/2)
	defer cancel()
	grace, cancel = context.WithTimeout(grace, maxReserve)
	defer cancel()
	r.wait(grace)
	return err
}

// stopAll gives every runner the same time.
func (r *runners) stopAll(ctx context.Context) error {
	errs := make([]error, len(r.byTopic))
	var wg sync.WaitGroup
	for i, runner := range r.byTopic {
		wg.Go(func() { errs[i] = runner.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wait returns when all handlers have, or ctx ends.
func (r *runners) wait(ctx context.Context) {
	for _, runner := range r.byTopic {
		select {
		case <-runner.Done():
		case <-ctx.Done():
			return
		}
	}
}
