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
// already. A delivery made by hand accepts every valid timeout and does
// nothing.
func (d Delivery) Extend(ctx context.Context, timeout time.Duration) error {
	if err := backend.CheckDelay(timeout); err != nil {
		return err
	}
	if d.visibility == nil {
		return nil
	}
	return d.visibility.extend(ctx, timeout)
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
