package consume

import (
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
	handler Handler
	topic   string
	config  backend.SubscriptionConfig
	logger  *zap.Logger // names topic and group
	metrics metrics

	subscription backend.Subscription // set by Start

	mu       sync.Mutex
	inFlight int // received, outcome not known yet
	cutOff   int // given up by a stop
}

func (c *consumer) String() string { return fmt.Sprintf("topic %q, group %q", c.topic, c.config.Group) }

// run hands deliveries out until the subscription ends. ctx bounds the writing
// of outcomes. Goroutines count towards owner; the backend bounds their number,
// since it has at most MaxInFlight unsettled deliveries out.
func (c *consumer) run(ctx context.Context, owner *sync.WaitGroup) {
	for d := range c.subscription.Deliveries() {
		c.mu.Lock()
		c.inFlight++
		c.metrics.inFlight.Update(float64(c.inFlight))
		c.mu.Unlock()
		owner.Go(func() { c.handle(ctx, d, owner) })
	}
}

func (c *consumer) done(r result) {
	c.metrics.deliveries[r].Inc(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	c.metrics.inFlight.Update(float64(c.inFlight))
	if r == interrupted {
		c.cutOff++
	}
}

// lost counts the deliveries that a stop has cut off or is about to.
func (c *consumer) lost() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight + c.cutOff
}

// handle takes one delivery from handler to outcome. A handler that ends its
// goroutine (runtime.Goexit) takes this one along, so all that must follow is
// deferred.
func (c *consumer) handle(ctx context.Context, d backend.Delivery, owner *sync.WaitGroup) {
	v := &visibility{source: d, timeout: c.config.VisibilityTimeout, owner: owner, failed: func(err error) {
		c.log(d).Warn("delivery not extended, will try again", zap.Error(err))
	}}
	message := d.Message()
	handlerCtx, cancel := context.WithCancel(tenants.NewContext(d.Context(), message.Tenant))
	started := time.Now()
	out := outcome{verb: nack, cause: errGoexit}
	defer func() {
		c.metrics.duration.RecordDuration(time.Since(started))
		cancel()
		v.end()
		c.done(c.settle(ctx, d, out))
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
	// What a handler returns once its context has ended says nothing about the
	// message: a killed command or a closed connection rarely wraps the
	// context's error. Unsettled, the delivery goes back without an attempt
	// spent.
	if out.verb == nack && d.Context().Err() != nil {
		c.logFailure(d, out.cause, "attempt interrupted, the message stays", zap.NamedError("cause", context.Cause(d.Context())))
		if errors.Is(context.Cause(d.Context()), backend.ErrLeaseLost) {
			return leaseLost
		}
		return interrupted
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
	m := d.Message()
	return c.logger.With(
		zap.String("tenant", string(m.Tenant)), zap.String("partition_key", m.PartitionKey),
		zap.String("id", m.ID), zap.Uint64("offset", m.Offset), zap.Int("attempt", d.Attempt()),
	)
}

// logFailure writes a handler's error; a panic is a bug and carries its stack.
func (c *consumer) logFailure(d backend.Delivery, err error, what string, fields ...zap.Field) {
	if p, ok := errors.AsType[*PanicError](err); ok {
		c.log(d).Error("handler panicked: "+what, append(fields, zap.String("panic", fmt.Sprint(p.Value)), zap.String("panic_stack", p.Stack))...)
		return
	}
	c.log(d).Warn(what, append(fields, zap.Error(err))...)
}
