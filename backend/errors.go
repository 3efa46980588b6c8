package backend

import (
	"errors"
	"fmt"
)

// Returned by every method that takes values from a caller, before any
// database access.
var (
	// ErrInvalid is wrapped by every [FieldError].
	ErrInvalid = errors.New("invalid value")
	// ErrTooLarge is returned by Publish and PublishTx for a payload or
	// metadata over the configured cap. It comes wrapped in a [FieldError].
	ErrTooLarge = errors.New("message too large")
)

// Returned by [Queue].
var (
	// ErrClosed is returned by every method of a queue or subscription that
	// has been closed or stopped.
	ErrClosed = errors.New("queue is closed")
	// ErrNotSupported is returned by PublishTx on a backend without SQL.
	ErrNotSupported = errors.New("not supported by this backend")
	// ErrNotFound is returned by [Admin] when no such message or group is
	// stored.
	ErrNotFound = errors.New("not found")
)

// Returned by [Delivery].
var (
	// ErrSettled is returned by the second of two settlements of a delivery.
	ErrSettled = errors.New("delivery is already settled")
	// ErrLeaseLost is returned when the partition's lease or the delivery's
	// visibility timeout has ended: another attempt is or will be made, and
	// this one changes nothing any more.
	ErrLeaseLost = errors.New("lease or visibility of the delivery has ended")
)

// FieldError says which value was refused and what would be accepted. It never
// shows a payload.
type FieldError struct {
	// Field is the name as the caller knows it, for example "tenant".
	Field string
	// Value is a printable, shortened form of what was given.
	Value string
	// Rule says what is accepted.
	Rule string
	// Err is ErrInvalid or ErrTooLarge; nil means ErrInvalid.
	Err error
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Rule)
	}
	return fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Rule)
}

// Unwrap makes errors.Is(err, ErrInvalid) or errors.Is(err, ErrTooLarge) hold.
func (e *FieldError) Unwrap() error {
	if e.Err != nil {
		return e.Err
	}
	return ErrInvalid
}
