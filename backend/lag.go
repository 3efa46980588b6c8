package backend

import "time"

// MaxLag bounds what [Lag] counts of one tenant.
const MaxLag = 10_000

// Lag tells how far a group is behind on a topic of one tenant. It is read
// without holding anything up: what is published or settled meanwhile may count
// or not.
type Lag struct {
	// Messages that are stored and that the group has not settled: those never
	// delivered, in flight, waiting for their next attempt, or postponed. At most
	// [MaxLag].
	Messages int
	// Oldest is the age of the oldest of them by the store's clock, in
	// milliseconds. 0 without any.
	Oldest time.Duration
	// AtLeast tells that there are more than were counted, or partitions that
	// were not looked at: Messages, and with very many partitions Oldest, are
	// lower bounds.
	AtLeast bool
}
