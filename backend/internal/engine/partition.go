package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// status is where an entry stands.
type status uint8

const (
	waiting status = iota // to be handed over once visible and in order
	out                   // handed over, no outcome yet
	writing               // outcome known, not yet durable
	settled               // durably settled ahead of the watermark
)

// write is what an entry in status writing wants written.
type write uint8

const (
	writeAck  write = iota // settled, with a copy to the dead-letter topic if dead
	writeFail              // wait until visible, with new counts
)

// charging is where the charge of a suspect that is out stands.
type charging uint8

const (
	uncharged     charging = iota
	chargeWanted           // received by somebody, to be written before he may look at it
	chargeSent             // part of the settlement under way
	chargeWritten          // durable
)

// entry is a message above the watermark that this owner has read.
type entry struct {
	offset     uint64
	msg        *Message // nil once settled
	d          *delivery
	visibleAt  time.Time
	deadline   time.Time // of the visibility timeout, while out
	attempts   int
	deliveries int
	status     status
	write      write
	suspect    bool // an owner that vanished may have handed it over
	charged    bool // the delivery that is out is in attempts already
	charge     charging
	barrier    bool
	stored     bool // has a delivery state row
	sent       bool // part of the settlement under way
	dead       bool
	lastError  string
}

// partition is what an owner knows of a partition it holds. All fields are
// guarded by Subscription.mu.
type partition struct {
	t   *tenant
	key string

	epoch   uint64
	expires time.Time // by this process's monotonic clock, never later than the store's
	renewAt time.Time

	watermark uint64
	stored    bool   // the group has a watermark row here
	claimed   uint64 // messages up to here may be handed over
	suspect   uint64 // see Grant
	states    map[uint64]State
	hasStates bool

	entries []*entry // in order of offset
	scan    int      // entries before it are none of them waiting
	fetched uint64   // all up to here has been read, but for late ones
	tail    uint64   // the highest offset known to exist
	late    []uint64 // offsets below fetched still to be read

	bytes    int // of the payloads held
	outs     int // entries out
	failing  int // entries writing a failure
	barriers int // of those, postponed ones
	writes   int // entries with an outcome or charge to be written and not yet sent

	fetching   bool // a fetch is under way
	settling   bool // a settlement is under way
	draining   bool // the settlement under way gives the lease up
	leaving    bool // to be handed over once nothing is in flight
	dropped    bool // no longer ours
	inReady    bool
	inFetch    bool
	inDirty    bool
	stalls     int
	failures   int       // settlements in a row that had an error
	retryAt    time.Time // when a stalled or failed settlement is tried again
	holdUntil  time.Time // nothing is written before: the store had an error
	acquiredAt time.Time

	blockedUntil time.Time // a failed or postponed message holds up the rest

	wakeAt    time.Time // see alarms
	wakeIndex int
}

func (p *partition) lease() Lease { return Lease{Key: p.key, Epoch: p.epoch} }

// release gives the lease back. Its row stays only for what it says of suspects:
// a partition that was drained meanwhile would have nobody to remove it.
func (p *partition) release() Release {
	return Release{Lease: p.lease(), Forget: p.suspect == 0 || p.idle()}
}

func (p *partition) find(offset uint64) (int, bool) {
	return slices.BinarySearchFunc(p.entries, offset, func(e *entry, o uint64) int { return cmp.Compare(e.offset, o) })
}

// insert adds messages read from the store. Those already known, or passed,
// are left out.
func (p *partition) insert(msgs []Message, now time.Time) {
	for i := range msgs {
		m := &msgs[i]
		if m.Offset <= p.watermark {
			continue
		}
		at := len(p.entries)
		if at > 0 && m.Offset <= p.entries[at-1].offset {
			var known bool
			if at, known = p.find(m.Offset); known {
				continue
			}
		}
		e := &entry{offset: m.Offset, msg: m, suspect: m.Offset <= p.suspect}
		if st, ok := p.states[m.Offset]; ok {
			delete(p.states, m.Offset)
			e.restore(st, now)
		}
		if e.msg != nil {
			p.bytes += len(e.msg.Payload)
			p.t.s.bytes += len(e.msg.Payload)
		}
		if e.suspect {
			e.deliveries++ // the one that nobody answered for
		}
		if m.Skip && e.status == waiting {
			e.status, e.write = writing, writeAck
			p.writes++
		}
		p.entries = slices.Insert(p.entries, at, e)
		p.scan = min(p.scan, at)
	}
}

func (e *entry) restore(st State, now time.Time) {
	e.stored = true
	if st.Settled {
		e.status, e.msg = settled, nil
		return
	}
	e.attempts, e.deliveries, e.barrier, e.lastError = st.Attempts, st.Deliveries, st.Barrier, st.Error
	if st.Delay > 0 {
		e.visibleAt = now.Add(st.Delay)
	}
}

// serial tells whether the partition's messages go one by one: by order of the
// subscription, or because one of them may be the poison that took an owner
// down. Entries are removed behind the watermark, so the first unsettled one
// decides.
func (p *partition) serial(strict bool) bool {
	if strict {
		return true
	}
	if p.suspect <= p.watermark {
		return false
	}
	for _, e := range p.entries {
		if e.offset > p.suspect {
			return false
		}
		if e.status != settled && (e.status != writing || e.write != writeAck) {
			return true
		}
	}
	return false
}

// next returns the entry to be handed over now, or the time to ask again (zero:
// when something changes). A suspect without attempts left is given up here,
// which makes the partition dirty.
func (p *partition) next(now time.Time, strict bool, maxAttempts int) (*entry, time.Time) {
	var at time.Time
	serial := p.serial(strict)
	if p.barriers > 0 || serial && (p.outs > 0 || p.failing > 0) {
		return nil, at
	}
	for i := p.scan; i < len(p.entries); i++ {
		e := p.entries[i]
		if e.status != waiting {
			if i == p.scan {
				p.scan++
			}
			continue
		}
		if e.offset > p.claimed {
			return nil, at // the claim is on its way
		}
		if e.visibleAt.After(now) {
			if at.IsZero() || e.visibleAt.Before(at) {
				at = e.visibleAt
			}
			if serial || e.barrier {
				p.blockedUntil = e.visibleAt
				return nil, at
			}
			continue
		}
		if e.suspect && e.attempts >= maxAttempts {
			e.status, e.write, e.dead = writing, writeAck, true
			if e.lastError == "" {
				e.lastError = "the process handling it ended without an answer"
			}
			p.writes++
			continue
		}
		return e, at
	}
	return nil, at
}

// fresh counts the entries that can be handed over in their turn. Those that
// failed have theirs later, and hold up nothing behind them, or all of it.
func (p *partition) fresh() (n int) {
	for _, e := range p.entries[p.scan:] {
		if e.status == waiting && e.visibleAt.IsZero() {
			n++
		}
	}
	return n
}

// idle tells that there is nothing left to do: all that is known is settled.
func (p *partition) idle() bool {
	return p.outs == 0 && p.exhausted() && p.prefix() == len(p.entries)
}

// exhausted tells that all that is known to exist has been read.
func (p *partition) exhausted() bool {
	return p.fetched >= p.tail && len(p.late) == 0 && !p.fetching
}

// prefix counts the entries, from the watermark on, that are settled or about
// to be.
func (p *partition) prefix() int {
	for i, e := range p.entries {
		if e.status != settled && (e.status != writing || e.write != writeAck) {
			return i
		}
	}
	return len(p.entries)
}

func (p *partition) unload(e *entry) {
	if e.msg != nil {
		p.bytes -= len(e.msg.Payload)
		p.t.s.bytes -= len(e.msg.Payload)
		e.msg = nil
	}
}

// truncate forgets the messages read behind one that holds the partition up, so
// that what waits long holds no memory. They are read again in their turn.
func (p *partition) truncate() {
	n := len(p.entries)
	for n > 1 && p.entries[n-1].status == waiting && !p.entries[n-1].stored && p.entries[n-1].deliveries == 0 {
		n--
		p.unload(p.entries[n])
	}
	if n == len(p.entries) || p.fetching {
		return
	}
	clear(p.entries[n:])
	p.entries = p.entries[:n]
	p.fetched = p.entries[n-1].offset
	p.scan = min(p.scan, n)
}

// known tells whether a message at offset has been read or passed already.
func (p *partition) known(offset uint64) bool {
	if offset <= p.watermark || slices.Contains(p.late, offset) {
		return true
	}
	_, ok := p.find(offset)
	return ok
}

// fail decides what a failed attempt leads to, and prepares its writing.
func (p *partition) fail(e *entry, cause string, policy backend.RetryPolicy, jitter func(time.Duration) time.Duration, now time.Time) {
	e.lastError = cause
	if !e.charged {
		e.attempts++
	}
	e.charged, e.suspect = false, false
	if e.attempts >= policy.MaxAttempts {
		e.write, e.dead = writeAck, true
		return
	}
	e.write = writeFail
	e.visibleAt = now.Add(jitter(policy.Backoff(e.attempts)))
	p.failing++
}

// forget unreads what has not been claimed.
func (p *partition) forget(now time.Time) {
	n := len(p.entries)
	for n > 0 && p.entries[n-1].offset > p.claimed && p.entries[n-1].status == waiting {
		n--
		e := p.entries[n]
		p.unload(e)
		if e.stored { // to be found again
			if p.states == nil {
				p.states = make(map[uint64]State)
			}
			p.states[e.offset] = State{
				Offset: e.offset, Attempts: e.attempts, Deliveries: e.deliveries, Delay: max(e.visibleAt.Sub(now), 0), Barrier: e.barrier, Error: e.lastError,
			}
		}
	}
	clear(p.entries[n:])
	p.entries = p.entries[:n]
	p.fetched = min(p.fetched, max(p.claimed, p.watermark))
	p.scan = min(p.scan, n)
}
