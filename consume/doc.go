// Package consume runs handlers: code that is given one message at a time and
// says by its return value what becomes of it.
//
//	consume.JSON(consume.Subscription{Topic: "request", Group: "lander"},
//		func(ctx context.Context, r Request, d consume.Delivery) error { … })
//
// # What a handler returns
//
//	nil                     the message is settled for the group
//	an error                the attempt failed: again after a backoff, or dead letter when attempts are spent
//	Postpone(d)             the partition waits d behind this message; no attempt is spent
//	Reject(cause)           dead letter now
//	a panic, Goexit         the attempt failed; the error holds the panic's value and stack
//	an error, after its     the attempt was interrupted by a stop or a lost lease: the delivery
//	context has ended       stays unsettled and the queue takes it back
//	anything, after its     the attempt failed (TestLateResultIsAFailedAttempt); the error wraps
//	HandlerTimeout          ErrHandlerTimeout
//
// Outcomes are found anywhere in the tree of a wrapped error.
//
// # How handlers run
//
// A [Runner] subscribes every handler and runs each delivery on a goroutine of
// its own, at most MaxInFlight of a handler at once. The message after may
// start while the outcome before is still being written; the order within a
// partition is the queue's to keep. While a handler runs its delivery is
// extended at every third of the visibility timeout, so a handler may take as
// long as it needs, or as its HandlerTimeout allows. One that never returns then
// loses its message (TestHandlerThatNeverReturnsLosesItsMessage), without it it
// keeps its partition for ever. A handler is called at least once for every
// message: one that changes the world should be idempotent, and publish under
// ids made by publish.IntentID.
//
// # What runs around handlers
//
// [Middleware] is given to a runner once and put around all of its handlers.
// Supplied are, from the outside in, tracing.Middleware, [Metrics], [Logging],
// [Timeout] and [Recover]; none is used unless listed.
//
// # What payloads are
//
// [JSON] and protobuf.Handler decode them; [Decode] takes any other format.
package consume
