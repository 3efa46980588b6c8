package engine

import (
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
)

// touch puts p where it has to go next. It is called with mu held after every
// change to p.
func (s *Subscription) touch(p *partition, now time.Time) {
	if p.dropped {
		return
	}
	t := p.t
	if !p.inReady && !p.leaving && !p.draining && !s.halted {
		e, at := p.next(now, s.strict(), s.o.Config.Retry.MaxAttempts)
		if e != nil {
			p.inReady = true
			t.ready.push(p)
			s.join(t)
		} else if !at.IsZero() {
			s.alarm(p, at)
			if p.blockedUntil.Sub(now) > longBlock {
				p.truncate()
			}
		}
	}
	if !p.fetching && !p.inFetch && s.wantsFetch(p) {
		p.inFetch = true
		t.fetch.push(p)
		s.offer(t)
	}
	if !p.settling && !p.inDirty && s.wantsSettle(p, now) {
		p.inDirty = true
		t.dirty.push(p)
		s.offerSettle(t)
	}
	if p.leaving && p.outs == 0 && p.writes == 0 && !p.settling && !p.fetching && !p.inDirty {
		s.drop(p)
		s.releases = append(s.releases, p)
		kick(s.releaseKick)
	}
}

func (s *Subscription) strict() bool { return s.o.Config.Ordering == backend.Strict }

func (s *Subscription) wantsFetch(p *partition) bool {
	if p.draining || p.leaving || s.halted || p.fetched >= p.tail && len(p.late) == 0 {
		return false
	}
	if len(p.late) > 0 {
		return true
	}
	if p.blockedUntil.After(time.Now()) {
		return false // what is behind can wait as well
	}
	return p.fresh() <= s.batch(p.t)/2 && len(p.entries) < maxEntries
}

// longBlock is how long a partition has to be held up for what was read of it
// to be forgotten.
const longBlock = 100 * time.Millisecond

// maxEntries bounds what is kept in memory, and as delivery states, of a
// partition behind a message that does not get settled.
const maxEntries = 10_000

// batch is the number of messages to read of a partition at a time: fewer when
// many partitions share the handlers, one at a time when payloads are large.
func (s *Subscription) batch(t *tenant) int {
	limit := min(s.o.Config.BatchSize, max(4*s.o.Config.MaxInFlight/max(len(t.parts), 1), 2))
	return max(min(limit, s.room()), 1)
}

// room is the number of messages that may be read before the payloads held
// exceed maxBytes, if they are of the size of those read last.
func (s *Subscription) room() int { return max(maxBytes-s.bytes, 0) / max(s.size, 1) }

// maxBytes is the amount of payload held beyond which prefetching ends.
const maxBytes = 64 << 20

// firstSize is what payloads are taken for until some have been read.
const firstSize = 1 << 20

func (s *Subscription) wantsSettle(p *partition, now time.Time) bool {
	if p.holdUntil.After(now) {
		s.alarm(p, p.holdUntil)
		return false
	}
	if p.writes > 0 {
		return true
	}
	if p.retryAt.After(now) {
		s.alarm(p, p.retryAt)
		return false
	}
	if len(p.late) > 0 {
		return false // the watermark stands before it, until it is read and settled
	}
	if p.leaving || s.halted {
		return p.prefix() > 0
	}
	return p.prefix() > 0 || p.idle()
}

// lose gives up a partition that is not ours any more.
func (s *Subscription) lose(p *partition) {
	if p.dropped {
		return
	}
	s.met.leaseLosses.Inc(1)
	s.o.Logger.Warn("lease lost", zap.String("tenant", string(p.t.id)), zap.String("partition_key", p.key), zap.Int("in_flight", p.outs))
	s.drop(p)
}

// drop forgets a partition. Deliveries still out are superseded; what a
// settlement under way will say of others holds.
func (s *Subscription) drop(p *partition) {
	p.dropped = true
	for _, e := range p.entries {
		p.unload(e)
		switch {
		case e.d == nil || e.sent:
		case e.status == out:
			s.supersede(p, e, backend.ErrLeaseLost)
		default:
			s.answer(e, backend.ErrLeaseLost)
		}
	}
	delete(p.t.parts, p.key)
	s.alarms.remove(p)
	s.leases--
	s.met.leases.Update(float64(s.leases))
}

// answer ends the wait of a handler for the outcome of its settlement.
func (s *Subscription) answer(e *entry, err error) {
	t := e.d.p.t
	if err == nil {
		t.met.settled[e.d.verb].Inc(1)
	}
	e.d.result <- err
	e.d = nil
	s.land(t, 1)
}

// answerSent does so for all that a settlement of a partition dropped meanwhile
// has covered.
func (s *Subscription) answerSent(p *partition, err error) {
	for _, e := range p.entries {
		if e.sent && e.d != nil {
			s.answer(e, err)
		}
	}
}

func (s *Subscription) join(t *tenant) {
	if !t.inRing && !t.paused {
		t.inRing = true
		s.ring.push(t)
	}
	kick(s.dispatchKick)
}

func (s *Subscription) offer(t *tenant) {
	if !t.inAdvance && !t.advancing {
		t.inAdvance = true
		s.advances.push(t)
		s.toAdvance.Signal()
	}
}

func (s *Subscription) offerSettle(t *tenant) {
	if !t.inSettle && t.settlers < tenantSettlers && (t.settlers == t.isolated || t.dirty.len() >= settlePartitions) {
		t.inSettle = true
		s.settles.push(t)
		s.toSettle.Signal()
	}
}

func (s *Subscription) alarm(p *partition, at time.Time) {
	if s.alarms.set(p, at) {
		kick(s.alarmKick)
	}
}

// jitter draws uniformly up to the bound ("full jitter"; Brooker, Exponential
// Backoff And Jitter, AWS Architecture Blog, 2015).
func (s *Subscription) jitter(bound time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
