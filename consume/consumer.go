package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// consumer drives one handler.
type consumer struct {
	name           string  // of the user's handler
	handler        Handler // with the middlewares around it
	topic          string
	config         backend.SubscriptionConfig
	handlerTimeout time.Duration // 0 for none
	logger         *zap.Logger   // names topic and group
	metrics        metrics

	subscription backend.Subscription // set by Start

	mu       sync.Mutex
	inFlight int // received, outcome not known yet
	deaf     int // of these, given up: they ignore the end of their context
	cutOff   int // given up by a stop
}

// newConsumer checks a handler and puts the middlewares around it.
func newConsumer(h Handler, p Params, middlewares chain) (*consumer, error) {
	s := h.Subscription()
	config := s.config(p.TopicDefaults(s.Topic))
	invalid := func(err error) error {
		return fmt.Errorf("handler %s, topic %q, group %q: %w", handlerName(h), s.Topic, config.Group, err)
	}
	if err := config.Validate(s.Topic); err != nil {
		return nil, invalid(err)
	}
	if s.HandlerTimeout != 0 {
		if err := checkTimeout("handler timeout", s.HandlerTimeout); err != nil {
			return nil, invalid(err)
		}
	}
	s.Group, s.HandlerTimeout = config.Group, cmp.Or(s.HandlerTimeout, p.HandlerTimeout)
	wrapped, err := middlewares.wrap(h, s)
	if err != nil {
		return nil, invalid(err)
	}
	return &consumer{
		name: handlerName(h), handler: wrapped, topic: s.Topic, config: config, handlerTimeout: s.HandlerTimeout,
		logger:  p.Logger.With(zap.String("topic", s.Topic), zap.String("group", config.Group)),
		metrics: newMetrics(p.Scope, s.Topic, config.Group),
	}, nil
}

// crew counts the goroutines that work for a runner.
type crew struct {
	all     sync.WaitGroup // and armed timers; Done waits for them
	heeding sync.WaitGroup // all but those in handlers that were given up; Stop waits for them
}

func (c *consumer) String() string { return fmt.Sprintf("topic %q, group %q", c.topic, c.config.Group) }

// run hands deliveries out until the subscription ends. ctx bounds the writing
// of outcomes. The backend bounds the number of goroutines, since it has at most
// MaxInFlight unsettled deliveries out; those that were given up come on top.
func (c *consumer) run(ctx context.Context, crew *crew) {
	for d := range c.subscription.Deliveries() {
		c.mu.Lock()
		c.inFlight++
		c.metrics.inFlight.Update(float64(c.inFlight))
		c.mu.Unlock()
		crew.heeding.Add(1)
		crew.all.Go(func() { c.handle(ctx, d, crew) })
	}
}

func (c *consumer) done(r result, deaf bool) {
	c.metrics.deliveries[r].Inc(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if deaf {
		c.deaf--
	}
	c.metrics.inFlight.Update(float64(c.inFlight))
	if r == interrupted {
		c.cutOff++
	}
}

// lost counts the deliveries that a stop has cut off or is about to, apart from
// the handlers that had been given up.
func (c *consumer) lost() (cutOff, deaf int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight - c.deaf + c.cutOff, c.deaf
}

// handle takes one delivery from handler to outcome. A handler that ends its
// goroutine (runtime.Goexit) takes this one along, so all that must follow is
// deferred.
func (c *consumer) handle(ctx context.Context, d backend.Delivery, crew *crew) {
	v := &visibility{source: d, timeout: c.config.VisibilityTimeout, owner: &crew.all, failed: func(err error) {
		c.log(d).Warn("delivery not extended, will try again", zap.Error(err))
	}}
	message := d.Message()
	started := time.Now()
	handlerCtx, cancel := context.WithCancel(tenants.NewContext(d.Context(), message.Tenant))
	defer cancel()
	if c.handlerTimeout > 0 {
		v.limit = started.Add(c.handlerTimeout)
		handlerCtx, cancel = context.WithDeadlineCause(handlerCtx, v.limit, ErrHandlerTimeout)
	}
	w := newWatch(handlerCtx, c.config.VisibilityTimeout/2, func() {
		c.log(d).Warn("handler ignores the end of its context and is given up",
			zap.Duration("running", time.Since(started)), zap.NamedError("cause", context.Cause(handlerCtx)))
		c.mu.Lock()
		c.deaf++
		c.mu.Unlock()
		crew.heeding.Done()
	})
	out := outcome{verb: nack, cause: errGoexit}
	defer func() {
		c.metrics.duration.RecordDuration(time.Since(started))
		if v.overdue() {
			out = out.late(c.handlerTimeout)
		}
		w.end()
		cancel()
		v.end()
		c.done(c.settle(ctx, d, out), w.deaf)
		if !w.deaf {
			crew.heeding.Done()
		}
	}()
	v.begin()
	out = c.call(handlerCtx, Delivery{Message: message, Attempt: d.Attempt(), visibility: v})
}

// call is where the stack of a panic ends; see runnerFrame.
func (c *consumer) call(ctx context.Context, d Delivery) (out outcome) {
	defer func() {
		if value := recover(); value != nil {
			out = outcome{verb: nack, cause: newPanicError(value)}
		}
	}()
	return outcomeOf(c.handler.Handle(ctx, d))
}

func (c *consumer) settle(ctx context.Context, d backend.Delivery, out outcome) result {
	if r, ok := out.interruption(d); ok {
		what := "attempt interrupted, the message stays"
		if r == leaseLost && errors.Is(out.cause, ErrHandlerTimeout) {
			what = "handler returned long after its timeout, the attempt had failed"
		}
		c.logFailure(d, out.cause, what, zap.NamedError("cause", context.Cause(d.Context())))
		return r
	}

	var err error
	var written result
	switch out.verb {
	case ack:
		written, err = acked, d.Ack(ctx)
	case nack:
		c.logFailure(d, out.cause, "attempt failed")
		written, err = nacked, d.Nack(ctx, out.cause)
	case postpone:
		written, err = postponed, d.Postpone(ctx, out.delay)
	case reject:
		c.logFailure(d, out.cause, "message rejected")
		written, err = rejected, d.Reject(ctx, out.cause)
	}
	switch {
	case err == nil:
		return written
	case ctx.Err() != nil, errors.Is(context.Cause(d.Context()), backend.ErrClosed), errors.Is(err, backend.ErrClosed):
		c.log(d).Warn("stopped before the outcome was written, another attempt follows", zap.Stringer("outcome", written))
		return interrupted
	case errors.Is(err, backend.ErrLeaseLost):
		c.log(d).Warn("lease ended before the outcome was written, another attempt follows", zap.Stringer("outcome", written))
		return leaseLost
	}
	c.log(d).Error("outcome not written, another attempt follows", zap.Stringer("outcome", written), zap.Error(err))
	return unwritten
}

// log names the delivery.
func (c *consumer) log(d backend.Delivery) *zap.Logger {
	return c.logger.With(deliveryFields(d.Message(), d.Attempt())...)
}

func deliveryFields(m backend.Message, attempt int) []zap.Field {
	return []zap.Field{
		zap.String("tenant", string(m.Tenant)), zap.String("partition_key", m.PartitionKey),
		zap.String("id", m.ID), zap.Uint64("offset", m.Offset), zap.Int("attempt", attempt),
	}
}

// logFailure writes a handler's error; a panic is a bug and carries its stack.
func (c *consumer) logFailure(d backend.Delivery, err error, what string, fields ...zap.Field) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		c.log(d).Error("handler panicked: "+what, append(fields, zap.String("panic", fmt.Sprint(p.Value)), zap.String("panic_stack", p.Stack))...)
		return
	}
	c.log(d).Warn(what, append(fields, zap.Error(err))...)
}
