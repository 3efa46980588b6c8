package engine

import (
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// tenant is what a subscription knows of a tenant with work. All fields are
// guarded by Subscription.mu.
type tenant struct {
	s      *Subscription
	id     tenants.ID
	weight int
	met    *tenantMetrics

	parts      map[string]*partition // held by us
	candidates map[string]*candidate // with messages, not held by us
	passed     map[string]passed     // partitions that may have messages, but none for this group

	ready  fifo[*partition] // with a message to hand over
	fetch  fifo[*partition] // with messages to read
	dirty  fifo[*partition] // with outcomes to write
	wanted fifo[*candidate] // to be acquired

	inRing     bool // in Subscription.ring
	credit     int  // deliveries left in this turn
	inflight   int  // handed over and not yet durably answered
	inAdvance  bool // in Subscription.advances
	advancing  bool
	inSettle   bool // in Subscription.settles
	settlers   int
	isolated   int       // of those, with a single partition that had an error before
	advanceAt  time.Time // not before, after an error
	activeAt   time.Time // when it last had work
	beatAt     time.Time // of the last heartbeat
	controlAt  time.Time // of the last look at members and pause
	collectAt  time.Time
	paused     bool
	members    []string // sorted; empty when unknown
	view       []string // keys with work at the last whole listing, sorted
	share      map[string]struct{}
	shareValid bool
	renewing   bool
	lag        backend.Lag // as last read
	lagAt      time.Time   // zero: not yet

	paged  bool   // too many partitions for one page
	cursor string // key the next page starts behind
}

// candidate is a partition with messages that somebody should take.
type candidate struct {
	key        string
	head, tail uint64
	since      time.Time // waiting since
	retryAt    time.Time // not before: somebody holds it
	seen       int       // number of the listing that saw it last
	queued     bool
}

// passed is a watermark behind which nothing is pending.
type passed struct {
	watermark uint64
	stored    bool // in a row of the partition's own
	tried     bool // to collect
}

// assignLimit is the number of partitions up to which a tenant is balanced to
// within one. Above it every key goes to the member it prefers.
const assignLimit = 4096

// ours tells whether the key falls to this subscriber.
func (t *tenant) ours(key string) bool {
	if len(t.members) < 2 {
		return true
	}
	me := t.s.o.Config.SubscriberName
	if !slices.Contains(t.members, me) {
		return false // our own heartbeat is not there yet
	}
	if t.paged || len(t.view) > assignLimit {
		return t.members[prefers(t.id, key, t.members)] == me
	}
	if !t.shareValid {
		t.share = make(map[string]struct{})
		for i, m := range assign(t.id, t.view, t.members) {
			if t.members[m] == me {
				t.share[t.view[i]] = struct{}{}
			}
		}
		t.shareValid = true
	}
	if _, ok := t.share[key]; ok {
		return true
	}
	if _, ok := slices.BinarySearch(t.view, key); ok {
		return false
	}
	return t.members[prefers(t.id, key, t.members)] == me // newer than the listing
}

// setMembers takes note of who is alive.
func (t *tenant) setMembers(members []string) {
	slices.Sort(members)
	if !slices.Equal(t.members, members) {
		t.members, t.shareValid = members, false
	}
}

// active tells whether there is anything to look after.
func (t *tenant) active() bool { return len(t.parts)+len(t.candidates) > 0 }

// surplus returns the partitions to be handed over to others: held by us
// beyond our share while they fall to another member.
func (t *tenant) surplus(now time.Time) []*partition {
	if len(t.members) < 2 {
		return nil
	}
	var others []*partition
	held := 0
	for key, p := range t.parts {
		switch {
		case p.leaving:
		case t.ours(key):
			held++
		default:
			held++
			if now.Sub(p.acquiredAt) >= t.s.settleDown {
				others = append(others, p)
			}
		}
	}
	share := len(t.share)
	if t.paged || len(t.view) > assignLimit {
		share = held - len(others) // each key by its own preference
	}
	if n := held - share; n < len(others) {
		others = others[:max(n, 0)]
	}
	return others
}
