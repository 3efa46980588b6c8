package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
)

// Params of [NewRunner]. Subscriber is required.
type Params struct {
	// Subscriber is usually a [backend.Queue].
	Subscriber backend.Subscriber
	// Handlers may be empty: such a runner does nothing.
	Handlers []Handler
	// Defaults are laid under every handler's [Subscription]. Zero fields mean
	// the backend's defaults.
	Defaults backend.SubscriptionConfig
	// HandlerTimeout is the default of the handlers' own; 0 for none, else 1 ms
	// to 1 year. See [Subscription].
	HandlerTimeout time.Duration
	// TopicDefaults, if not nil, takes the place of Defaults: topics may be
	// configured apart and yet be started and stopped as one.
	TopicDefaults func(topic string) backend.SubscriptionConfig
	// Middleware is put around every handler, in the order of priorities. The
	// order of the slice means nothing.
	Middleware []Middleware
	// Logger, nil for none.
	Logger *zap.Logger
	// Scope, nil for none.
	Scope tally.Scope
}

// Runner subscribes handlers and drives them. It is started once and stopped
// once; all methods are safe for concurrent use.
//
// Start, Stop and Done are a trio: after Start handlers run until Stop, which
// lets them finish in the time it is given; Done tells that the last one has
// returned, which for a handler that ignores its context may be later. Such a
// handler is given up half a visibility timeout after its context has ended:
// a warning names its delivery, and Stop waits for it no more.
//
// Goroutines: one per handler reads deliveries, one per delivery handles it,
// a timer per delivery fires if the handler takes long, and one more per
// delivery waits for the handler once its context has ended. All are waited for.
type Runner struct {
	subscriber backend.Subscriber
	logger     *zap.Logger
	consumers  []*consumer // by topic and group
	crew       crew

	ctx    context.Context // bounds the writing of outcomes; ends with a stop
	cancel context.CancelFunc

	mu         sync.Mutex
	stopping   bool
	starting   chan struct{} // closed when Start has returned; nil before Start
	abortStart context.CancelCauseFunc
	running    []*consumer   // subscribed: all or none
	done       chan struct{} // closed when stopped and all handlers returned
	closeDone  func()
}

// rollbackTimeout bounds the undoing of a Start that did not succeed.
const rollbackTimeout = 5 * time.Second

var (
	errStopped = errors.New("the runner is stopped")
	errStarted = errors.New("the runner was started before; make a new one")
)

// NewRunner checks every handler's subscription, that no two handlers share a
// topic and group (they would take each other's messages), and the middlewares.
// It reports all mistakes at once, each naming the handler or middleware; those
// of a subscription are [backend.FieldError]. It does no I/O.
func NewRunner(p Params) (*Runner, error) {
	if p.Subscriber == nil {
		return nil, errors.New("consume.Params.Subscriber is nil; hand in the queue")
	}
	if p.Logger == nil {
		p.Logger = zap.NewNop()
	}
	if p.Scope == nil {
		p.Scope = tally.NoopScope
	}
	if p.TopicDefaults == nil {
		p.TopicDefaults = func(string) backend.SubscriptionConfig { return p.Defaults }
	}
	r := &Runner{subscriber: p.Subscriber, logger: p.Logger, done: make(chan struct{})}
	r.closeDone = sync.OnceFunc(func() { close(r.done) })
	r.ctx, r.cancel = context.WithCancel(context.Background())

	var faults []error
	middlewares, err := newChain(p.Middleware)
	if err != nil {
		faults, middlewares = append(faults, err), nil
	}
	if p.HandlerTimeout != 0 {
		if err := checkTimeout("consume.Params.HandlerTimeout", p.HandlerTimeout); err != nil {
			faults = append(faults, err)
		}
	}
	first := make(map[[2]string]string) // names of handlers
	for i, h := range p.Handlers {
		if missing(h) {
			faults = append(faults, fmt.Errorf("handler %d of %d is nil; hand in a handler or drop it", i+1, len(p.Handlers)))
			continue
		}
		c, err := newConsumer(h, p, middlewares)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		key := [2]string{c.topic, c.config.Group}
		if other, ok := first[key]; ok {
			faults = append(faults, fmt.Errorf("handlers %s and %s both consume topic %q, group %q; give one another group or drop it",
				other, c.name, c.topic, c.config.Group))
			continue
		}
		first[key] = c.name
		r.consumers = append(r.consumers, c)
	}
	if len(faults) > 0 {
		r.cancel()
		return nil, errors.Join(faults...)
	}
	slices.SortFunc(r.consumers, func(a, b *consumer) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.config.Group, b.config.Group))
	})
	return r, nil
}

// Start subscribes every handler; none runs before all are subscribed. When one
// is refused, or ctx ends first, those subscribed are stopped again and nothing
// is left behind. ctx bounds the call, not the handlers.
func (r *Runner) Start(ctx context.Context) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r.mu.Lock()
	switch {
	case r.stopping:
		r.mu.Unlock()
		return errStopped
	case r.starting != nil:
		r.mu.Unlock()
		return errStarted
	}
	r.starting, r.abortStart = make(chan struct{}), abort
	r.mu.Unlock()
	defer close(r.starting)

	for i, c := range r.consumers {
		var err error
		if c.subscription, err = r.subscriber.Subscribe(ctx, c.topic, c.config); err != nil {
			err = fmt.Errorf("subscribe handler %s, %v: %w", c.name, c, err)
			return errors.Join(err, rollback(ctx, r.consumers[:i]))
		}
	}
	r.mu.Lock()
	if ctx.Err() == nil {
		r.running = r.consumers
		for _, c := range r.running {
			r.crew.heeding.Add(1)
			r.crew.all.Go(func() {
				defer r.crew.heeding.Done()
				r.run(c)
			})
		}
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	return errors.Join(fmt.Errorf("start handlers: %w", context.Cause(ctx)), rollback(ctx, r.consumers))
}

// rollback stops subscriptions that no handler has seen a delivery of.
func rollback(ctx context.Context, subscribed []*consumer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return stopAll(ctx, subscribed)
}

func (r *Runner) run(c *consumer) {
	c.run(r.ctx, &r.crew)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		c.logger.Error("the subscription has ended without being stopped: its handler gets no more deliveries")
	}
}

// stopAll stops subscriptions at the same time: they share the time given.
func stopAll(ctx context.Context, consumers []*consumer) error {
	errs := make([]error, len(consumers))
	var wg sync.WaitGroup
	for i, c := range consumers {
		wg.Go(func() {
			if err := c.subscription.Stop(ctx); err != nil {
				errs[i] = fmt.Errorf("stop %v: %w", c, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Stop ends deliveries and waits for the handlers that run. When ctx ends before
// they have finished, their contexts are cancelled and Stop returns at once with
// an error that counts the deliveries cut off; they spend no attempt. [Runner.Done]
// tells when the handlers have followed. Handlers that have been given up are
// not waited for, but counted by the error. A second Stop waits like the first,
// in its own time. Stop before Start makes Start fail; during it, it ends it.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopping = true
	starting, abort := r.starting, r.abortStart
	r.mu.Unlock()
	if starting != nil {
		abort(errStopped)
	}

	var failed error
	drained := make(chan struct{})
	go func() { // goes on when ctx ends: a stop is never half done
		if starting != nil {
			<-starting
		}
		failed = stopAll(ctx, r.subscribed())
		r.crew.heeding.Wait()
		r.cancel()
		close(drained)
		r.crew.all.Wait()
		r.closeDone()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		r.cancel()
	}
	if err := r.left(ctx); err != nil {
		return err
	}
	select {
	case <-drained:
		<-r.done // nobody was given up, so all are about to return
		return failed
	default:
		return fmt.Errorf("stop handlers: subscriptions have not ended: %w", context.Cause(ctx))
	}
}

func (r *Runner) subscribed() []*consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// left counts the deliveries that a stop gave no time to finish and the handlers
// that run on, and says whose they are. It returns nil if there are none.
func (r *Runner) left(ctx context.Context) error {
	var cutOff, deaf int
	var cutOffs, deafs []string
	for _, c := range r.subscribed() {
		n, m := c.lost()
		cutOff, deaf = cutOff+n, deaf+m
		if n > 0 {
			cutOffs = append(cutOffs, fmt.Sprintf("%v: %d", c, n))
		}
		if m > 0 {
			deafs = append(deafs, fmt.Sprintf("%v: %d", c, m))
		}
	}
	var err error
	if cutOff > 0 {
		err = fmt.Errorf("stop handlers: %d deliveries cut off (%s)", cutOff, strings.Join(cutOffs, "; "))
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
	if deaf > 0 {
		err = errors.Join(err, fmt.Errorf("stop handlers: %d run on, ignoring the end of their context (%s)", deaf, strings.Join(deafs, "; ")))
	}
	return err
}

// Done is closed once the runner is stopped and the last handler has returned.
func (r *Runner) Done() <-chan struct{} { return r.done }
