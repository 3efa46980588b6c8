package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Postpone is returned by a handler that cannot do its work yet: the whole
// partition waits for d behind this message, and no attempt is spent. d is 1 ms
// to 1 year; any other makes the attempt a failed one. The error is a
// [*PostponeError].
func Postpone(d time.Duration) error { return &PostponeError{Delay: d} }

// Reject is returned by a handler for a message that no further attempt can
// handle: it becomes a dead letter now. The error reads as cause and is a
// [*RejectError].
func Reject(cause error) error { return &RejectError{Cause: cause} }

// PostponeError is what [Postpone] returns.
type PostponeError struct{ Delay time.Duration }

func (e *PostponeError) Error() string { return fmt.Sprintf("postponed for %v", e.Delay) }

// RejectError is what [Reject] returns. It wins over a PostponeError in the same
// tree.
type RejectError struct{ Cause error }

func (e *RejectError) Error() string {
	if e.Cause == nil {
		return "rejected without a cause"
	}
	return e.Cause.Error()
}

// Unwrap returns the cause.
func (e *RejectError) Unwrap() error { return e.Cause }

// errGoexit stands for the result of a handler that never returned.
var errGoexit = errors.New("handler ended by runtime.Goexit, as t.FailNow does, instead of returning")

type verb int

const (
	ack verb = iota
	nack
	postpone
	reject
)

// outcome is what a handler's result asks for.
type outcome struct {
	verb  verb
	cause error         // of a nack or reject
	delay time.Duration // of a postpone
}

// outcomeOf reads a handler's result. It calls the error's own methods, which
// may panic like the handler itself.
func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{verb: ack}
	}
	_ = err.Error()                                   // the backend will ask for it where a panic would end the process
	if _, ok := errors.AsType[*PanicError](err); ok { // whatever it panicked with
		return outcome{verb: nack, cause: err}
	}
	if _, ok := errors.AsType[*RejectError](err); ok {
		return outcome{verb: reject, cause: err}
	}
	if p, ok := errors.AsType[*PostponeError](err); ok {
		if invalid := backend.CheckDelay(p.Delay); invalid != nil {
			return outcome{verb: nack, cause: fmt.Errorf("postpone: %w", invalid)}
		}
		return outcome{verb: postpone, delay: p.Delay}
	}
	return outcome{verb: nack, cause: err}
}

// interruption tells what becomes of a failed attempt at d if that has ended
// already. What a handler returns once its context has ended says nothing about
// the message: a killed command or a closed connection rarely wraps the
// context's error. Unsettled, the delivery goes back without an attempt spent.
func (o outcome) interruption(d backend.Delivery) (result, bool) {
	switch {
	case o.verb != nack || d.Context().Err() == nil:
		return 0, false
	case errors.Is(context.Cause(d.Context()), backend.ErrLeaseLost):
		return leaseLost, true
	}
	return interrupted, true
}

// late is what is made of o when it comes after the end of the handler's time:
// the attempt has failed.
func (o outcome) late(timeout time.Duration) outcome {
	if o.verb == nack {
		return outcome{verb: nack, cause: timedOut(timeout, o.cause)}
	}
	err := fmt.Errorf("%w after %v and returned %v too late", ErrHandlerTimeout, timeout, result(o.verb))
	if o.cause != nil {
		err = fmt.Errorf("%w: %w", err, o.cause)
	}
	return outcome{verb: nack, cause: err}
}
