package consume

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Delivery is one attempt to handle one message. Its slices and maps belong to
// the handler.
//
// A handler's unit test makes one itself:
//
//	consume.Delivery{Message: backend.Message{Tenant: "docs", Payload: payload}, Attempt: 1}
type Delivery struct {
	backend.Message

	// Attempt counts the times the message may have been handed to a handler
	// of this group, this time included: 1 for the first.
	Attempt int

	visibility *visibility // nil for a delivery made by hand
	failure    *backend.Failure
}

// Extend makes the visibility timeout end timeout from now. A running handler
// needs it only to survive a pause of its whole process: its deliveries are
// extended by themselves, and never cut below what is asked for here. timeout
// is 1 ms to 1 year; [backend.ErrLeaseLost] when the visibility has ended
// already. Under a HandlerTimeout it ends one visibility timeout after that at
// the latest, whatever is asked for here, and [ErrHandlerTimeout] is returned
// once that is over. A delivery made by hand accepts every valid timeout and
// does nothing.
func (d Delivery) Extend(ctx context.Context, timeout time.Duration) error {
	if err := backend.CheckDelay(timeout); err != nil {
		return err
	}
	if d.visibility == nil {
		return nil
	}
	return d.visibility.extend(ctx, timeout)
}

// Outcome tells what the runner makes of it when the handler returns err now,
// for middlewares: "ack", "nack", "postpone" or "reject"; or, when it is left
// unsettled because it ended before, "interrupted" by a stop or "lease_lost".
// The writing of an outcome may fail yet. The tags of the runner's metric
// consume.deliveries are named alike. A delivery made by hand never ends.
func (d Delivery) Outcome(err error) string {
	out := outcomeOf(err)
	if d.visibility != nil {
		if d.visibility.overdue() {
			out.verb = nack
		}
		if r, ok := out.interruption(d.visibility.source); ok {
			return r.String()
		}
	}
	return result(out.verb).String()
}

// Failure tells how a message of a dead-letter topic failed. It is false on any
// other topic.
func (d Delivery) Failure() (backend.Failure, bool) {
	switch {
	case d.failure != nil:
		return *d.failure, true
	case d.visibility != nil:
		return d.visibility.source.Failure()
	}
	return backend.Failure{}, false
}

// WithFailure returns a copy of d whose Failure is f, for unit tests of handlers
// of dead-letter topics.
func (d Delivery) WithFailure(f backend.Failure) Delivery {
	d.failure = &f
	return d
}
