package mqfx

import (
	"context"
	"time"
)

const (
	// rollbackTimeout bounds the undoing of a start that failed, whose own
	// context may have ended.
	rollbackTimeout = 5 * time.Second
	// maxReserve is what a stopping module leaves at most of its time to those
	// that stop after it.
	// The queue takes up to 2 s of it, or a quarter of what it was given, to give
	// back its leases when handlers have used up their time.
	maxReserve = 3 * time.Second
)

func rollback(ctx context.Context, undo func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return undo(ctx)
}

// reserve returns the part of ctx's time that is not to be used up.
func reserve(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return min(maxReserve, time.Until(deadline)/4)
}

// endEarly returns a context that ends that much before ctx does.
func endEarly(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-by))
}
