// Package engine delivers messages: leases, assignment, fairness, ordering,
// retries and settlement for one subscription. It knows no SQL; a [Store] per
// backend does.
package engine

import (
	"bytes"
	"context"
	"maps"
	"math"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Store is what a backend supplies for one subscription, that is one member of
// one consumer group of one topic. Every method with a tenant touches that one
// alone. Durations are relative to the store's clock, never points in time. Methods are safe for concurrent use; the engine never runs
// two of Acquire, Renew, Settle, Release on the same partition at once.
type Store interface {
	// Register makes the group known for every tenant, at the start position
	// if it is new.
	Register(ctx context.Context, list []tenants.ID) error

	// Discover lists the partitions that have stored messages, in the store's
	// order of tenants and keys, at most limit of them. After applies when list
	// has one tenant: only keys behind it are listed ("" lists from the
	// start). A full page means there may be more.
	Discover(ctx context.Context, list []tenants.ID, after string, limit int) ([]Stored, error)

	// Control reads who else consumes, and whether deliveries are paused. A
	// tenant without any member has no entry in Members.
	Control(ctx context.Context, list []tenants.ID) (map[tenants.ID]Control, error)

	// Beat says this subscriber is alive and forgets those that are not.
	Beat(ctx context.Context, tenant tenants.ID) error

	// Leave takes this subscriber's heartbeat away.
	Leave(ctx context.Context, tenant tenants.ID) error

	// Acquire takes the leases of those candidates that nobody holds.
	Acquire(ctx context.Context, tenant tenants.ID, candidates []Candidate) (Acquired, error)

	// Renew prolongs leases and returns the keys of those that were lost.
	Renew(ctx context.Context, tenant tenants.ID, leases []Lease) (lost []string, err error)

	// Release gives leases back, so that another subscriber can take them at
	// once and suspects nothing. Leases lost meanwhile are passed over.
	Release(ctx context.Context, tenant tenants.ID, releases []Release) error

	// Claim raises the mark up to which messages may have been handed over.
	// Leases lost meanwhile are passed over.
	Claim(ctx context.Context, tenant tenants.ID, claims []Claim) error

	// Fetch reads messages in order of offset within each range.
	Fetch(ctx context.Context, tenant tenants.ID, ranges []Range) ([]Fetched, error)

	// Settle writes outcomes in one transaction, one result for each
	// settlement. Results are complete or absent (err).
	Settle(ctx context.Context, tenant tenants.ID, settlements []Settlement) ([]Settled, error)

	// Collect removes the messages of the given partitions that every group
	// has passed, with the state behind them. It reports the keys whose stored
	// watermark of this group differs from the one given.
	Collect(ctx context.Context, tenant tenants.ID, passed []Passed) (stale []string, err error)

	// Lag reads how far the group is behind in each of the tenants. One without
	// an entry is not.
	Lag(ctx context.Context, list []tenants.ID) (map[tenants.ID]backend.Lag, error)

	// Now reads the clock that PublishedAt is taken from.
	Now(ctx context.Context) (time.Time, error)

	// Purge removes what subscribers that died left behind: heartbeats,
	// leases, and watermarks of partitions without messages. Bounded; call it
	// again and again.
	Purge(ctx context.Context, list []tenants.ID) error
}

// clone returns a copy for a receiver, who may write to what he is given while
// the original may have to be delivered again.
func (m *Message) clone() *Message {
	c := *m
	c.Payload = bytes.Clone(m.Payload)
	c.Metadata = maps.Clone(m.Metadata)
	return &c
}

// Stored is a partition with messages, whoever has settled them.
type Stored struct {
	Tenant     tenants.ID
	Key        string
	Head, Tail uint64
}

// Control is what a subscription needs to know of a tenant.
type Control struct {
	Members []string // subscribers with a live heartbeat, this one included once it has beaten
	Paused  bool
}

// Lease names a partition and the epoch it is held under.
type Lease struct {
	Key   string
	Epoch uint64
}

// Candidate is a partition to be taken. Messages up to Claim may be handed
// over under the new lease.
type Candidate struct {
	Key   string
	Claim uint64
}

// Acquired is the result of Acquire.
type Acquired struct {
	Grants []Grant
	// Denied holds the time left to the leases that others hold.
	Denied map[string]time.Duration
	Paused bool
}

// Grant is a lease taken, with what the group had done in the partition.
type Grant struct {
	Lease
	// Watermark is the group's position; Stored tells whether it has a row of
	// its own.
	Watermark uint64
	Stored    bool
	// Suspect is the highest offset that an owner which vanished may have
	// handed over; 0 for none.
	Suspect uint64
	// States above the watermark, in order of offset.
	States []State
}

// State is what a group knows of one message it has not passed.
type State struct {
	Offset     uint64
	Settled    bool
	Attempts   int           // charged to the retry policy
	Deliveries int           // times it may have been handed over
	Delay      time.Duration // until it may be delivered again
	Barrier    bool          // postponed: the partition waits for it
	Error      string
}

// Release gives a lease back. Forget leaves no row: nothing is pending there, or
// nothing of it is suspect.
type Release struct {
	Lease
	Forget bool
}

// Claim is a mark to be raised.
type Claim struct {
	Lease
	Offset uint64
}

// Unbounded as Range.Through asks for everything there is.
const Unbounded = math.MaxUint64

// Range asks for messages with offsets above After and at most Through, or for
// those listed in Only.
type Range struct {
	Key            string
	After, Through uint64
	Limit          int
	Only           []uint64
}

// Fetched are the messages of one range.
type Fetched struct {
	Key      string
	Messages []Message
	// Exhausted tells that the range held no more than Messages.
	Exhausted bool
}

// Message is a stored message as this group sees it.
type Message struct {
	backend.Message
	Failure *backend.Failure // on a dead-letter topic
	Skip    bool             // redriven for another group: settle without delivering
}

// Settlement is what is to be written of one partition.
type Settlement struct {
	Lease
	Watermark uint64
	Stored    bool
	// Run are settled offsets that follow the watermark directly, as far as
	// this owner has seen, ascending, at most [MaxRun]. The watermark moves
	// behind them unless messages that arrived late are found between.
	Run []uint64
	// States are written as they are. Those with Settled lie above the run.
	States []State
	// DeadLetters are copied to the dead-letter topic in the same transaction.
	DeadLetters []DeadLetter
	// HasStates tells that states of offsets in or below the run are stored.
	HasStates bool
	// Drained tells that this owner knows of no message beyond the run: if no
	// other group waits for one, the partition's rows and the lease go away.
	Drained bool
}

// MaxRun bounds the messages a transaction settles in one partition.
const MaxRun = 1000

// DeadLetter is a message given up.
type DeadLetter struct {
	Message  backend.Message
	Attempts int
	Error    string
}

// Settled is the result of a settlement.
type Settled struct {
	// Lost: the lease is somebody else's now and nothing was written.
	Lost bool
	// Drained: nothing is pending here for this group and the lease is gone.
	// The partition left no row, unless Stored tells that its messages wait
	// for other groups.
	Drained bool
	// Watermark and Stored as they are now.
	Watermark uint64
	Stored    bool
	// Late are offsets inside the run that had not been seen. The watermark
	// stands before the first; what lies behind was written as settled states.
	Late []uint64
	// Stalled: a publisher is inside the run. The run was written as settled
	// states; try again later with the same run.
	Stalled bool
}

// Passed is a partition whose stored messages this group has passed.
type Passed struct {
	Key       string
	Watermark uint64
	Stored    bool
}
