package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// ErrHandlerTimeout is the cause that a handler's context ends with at a
// HandlerTimeout of [Subscription] or [Params] or at the end of a [Timeout],
// and is wrapped by what is kept as the error of such an attempt.
// [Delivery.Extend] returns it afterwards.
var ErrHandlerTimeout = errors.New("handler timed out")

// Timeout is a middleware that ends the context of every attempt after d, with
// the cause [ErrHandlerTimeout], which the handler's error then wraps. d is 1 ms
// to 1 year; [NewRunner] refuses others with a [backend.FieldError].
//
// It only asks: a handler that returns nil later is acknowledged, and one that
// ignores its context keeps its message. Subscription.HandlerTimeout takes it
// away. Give Timeout the shorter time of the two.
func Timeout(d time.Duration) Middleware {
	return Middleware{Name: "timeout", Priority: PriorityTimeout, Wrap: func(next Handler) Handler {
		if err := checkTimeout("timeout", d); err != nil {
			return refused{next, err}
		}
		return Wrap(next, func(ctx context.Context, delivery Delivery) error {
			limited, cancel := context.WithTimeoutCause(ctx, d, ErrHandlerTimeout)
			defer cancel()
			err := next.Handle(limited, delivery)
			if err == nil || limited.Err() == nil || ctx.Err() != nil {
				return err
			}
			return timedOut(d, err)
		})
	}}
}

// timedOut says so of an error, unless the error does.
func timedOut(after time.Duration, err error) error {
	if errors.Is(err, ErrHandlerTimeout) {
		return err
	}
	return fmt.Errorf("%w after %v: %w", ErrHandlerTimeout, after, err)
}

func checkTimeout(field string, d time.Duration) error {
	if d >= backend.MinDuration && d <= backend.MaxDuration {
		return nil
	}
	return &backend.FieldError{
		Field: field, Value: d.String(),
		Rule: fmt.Sprintf("want %v to %v", backend.MinDuration, backend.MaxDuration),
	}
}
