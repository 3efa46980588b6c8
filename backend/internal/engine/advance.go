package engine

import (
	"time"
)

// Bounds of one step of a tenant.
const (
	acquireChunk = 100
	fetchChunk   = 100
	leaseChunk   = 500
	// starving is how long a partition waits at most while others keep the
	// handlers busy.
	starving = time.Second
	// recheck is how often a lease that somebody else holds, on a partition
	// that falls to us, is looked at: its owner is about to hand it over.
	recheck = 100 * time.Millisecond
)

// advance acquires and fetches, a tenant at a time and in turn.
func (s *Subscription) advance() {
	for {
		s.mu.Lock()
		for !s.quit && s.advances.len() == 0 {
			s.toAdvance.Wait()
		}
		if s.quit {
			s.mu.Unlock()
			return
		}
		t := s.advances.pop()
		t.inAdvance, t.advancing = false, true
		now := time.Now()
		var err error
		if !s.halted && !t.paused && !t.advanceAt.After(now) {
			err = s.step(t, now)
		}
		t.advancing = false
		switch {
		case err != nil:
			s.faults.report("advance", t.id, err)
			t.advanceAt = time.Now().Add(s.faults.pause())
		case s.hungry(t) && !t.advanceAt.After(now):
			s.offer(t)
		}
		s.mu.Unlock()
	}
}

// target is the number of partitions of a tenant that should have a message
// ready: enough to keep the tenant's share of the handlers busy.
func (s *Subscription) target() int {
	return max(2*s.o.Config.MaxInFlight/max(s.ring.len(), 1), 4)
}

// hungry tells whether a step of the tenant would bring messages that can be
// used now. Every step takes something out of the tenant's queues.
func (s *Subscription) hungry(t *tenant) bool {
	return !t.paused && !s.halted && t.fetch.len()+t.wanted.len() > 0 && t.ready.len() < s.target() && s.allowance(t) > 0
}

// allowance is the number of messages that may be read for a tenant now: one at
// least if it has none to hand over, however many payloads are held.
func (s *Subscription) allowance(t *tenant) int {
	if t.ready.len() == 0 {
		return max(s.room(), 1)
	}
	return s.room()
}

// step takes a tenant one step forward. mu is held on entry and exit, and not
// over store calls.
func (s *Subscription) step(t *tenant, now time.Time) error {
	if err := s.acquire(t, now); err != nil {
		return err
	}
	return s.fetch(t, now)
}

// acquire takes leases. Candidates beyond what keeps the handlers busy wait,
// but not for ever.
func (s *Subscription) acquire(t *tenant, now time.Time) error {
	hungry := t.ready.len() < s.target()
	var take []*candidate
	var put []*candidate
	for n := t.wanted.len(); n > 0 && len(take) < acquireChunk; n-- {
		c := t.wanted.pop()
		if !c.queued || t.candidates[c.key] != c {
			continue // taken, or gone meanwhile
		}
		if !hungry && now.Sub(c.since) < starving {
			put = append(put, c)
			continue
		}
		take = append(take, c)
	}
	for _, c := range put {
		t.wanted.push(c)
	}
	if len(take) == 0 {
		return nil
	}
	list := make([]Candidate, len(take))
	for i, c := range take {
		list[i] = Candidate{Key: c.key, Claim: min(c.tail, c.head+uint64(s.o.Config.BatchSize)-1)}
	}
	asked := time.Now()
	s.mu.Unlock()
	got, err := s.o.Store.Acquire(s.ctx, t.id, list)
	s.mu.Lock()
	now = time.Now()
	if err != nil {
		for _, c := range take {
			t.wanted.push(c)
		}
		return err
	}
	if got.Paused {
		t.paused = true
	}
	taken := make(map[string]int, len(list))
	for i, c := range list {
		taken[c.Key] = i
	}
	for _, g := range got.Grants {
		i := taken[g.Key]
		s.hold(t, g, take[i].tail, list[i].Claim, asked, now)
	}
	for _, c := range take {
		if t.candidates[c.key] != c {
			continue
		}
		c.queued = false // somebody else's, for now
		wait := min(max(got.Denied[c.key], time.Millisecond), recheck)
		if !t.ours(c.key) {
			wait = min(max(got.Denied[c.key], recheck), starving)
		}
		c.since, c.retryAt = now, now.Add(wait)
	}
	return nil
}

// hold starts work on a partition just acquired.
func (s *Subscription) hold(t *tenant, g Grant, tail, claim uint64, asked, now time.Time) {
	if c := t.candidates[g.Key]; c != nil {
		tail = max(tail, c.tail)
		delete(t.candidates, g.Key)
	}
	p := &partition{
		t: t, key: g.Key, epoch: g.Epoch, wakeIndex: -1,
		expires: asked.Add(s.o.Config.LeaseDuration), renewAt: asked.Add(s.o.Config.LeaseRenewal),
		watermark: g.Watermark, stored: g.Stored, claimed: claim, suspect: g.Suspect,
		fetched: g.Watermark, tail: tail, acquiredAt: now,
	}
	if len(g.States) > 0 {
		p.hasStates = true
		p.states = make(map[uint64]State, len(g.States))
		for _, st := range g.States {
			p.states[st.Offset] = st
		}
	}
	t.parts[g.Key] = p
	s.leases++
	s.met.leases.Update(float64(s.leases))
	s.alarm(p, p.expires)
	s.touch(p, now)
}

// fetch reads messages of partitions that have some.
func (s *Subscription) fetch(t *tenant, now time.Time) error {
	hungry := t.ready.len() < s.target()
	limit, room := s.batch(t), min(settleRows, s.allowance(t))
	var parts []*partition
	var put []*partition
	var ranges []Range
	rows := 0
	for n := t.fetch.len(); n > 0 && len(parts) < fetchChunk && rows < room; n-- {
		p := t.fetch.pop()
		if p.dropped || p.fetching || !s.wantsFetch(p) {
			p.inFetch = false
			continue
		}
		starved := len(p.entries) == p.scan && now.Sub(p.acquiredAt) >= starving && s.room() > 0
		if !hungry && !starved {
			put = append(put, p)
			continue
		}
		p.inFetch = false
		r := Range{Key: p.key, After: p.fetched, Through: Unbounded, Limit: limit}
		if len(p.late) > 0 {
			r = Range{Key: p.key, Only: p.late, Limit: len(p.late)}
		} else if p.claimed > p.fetched && p.claimed < p.tail {
			r.Through = p.claimed // what the claim made when acquiring covers
		} else if p.tail-p.fetched < uint64(limit) {
			r.Limit = int(p.tail-p.fetched) + 1
		}
		p.fetching = true
		parts, ranges = append(parts, p), append(ranges, r)
		rows += r.Limit
	}
	for _, p := range put {
		t.fetch.push(p)
	}
	if len(parts) == 0 {
		return nil
	}
	tails := make([]uint64, len(parts))
	for i, p := range parts {
		tails[i] = p.tail
	}
	s.mu.Unlock()
	got, err := s.o.Store.Fetch(s.ctx, t.id, ranges)
	s.mu.Lock()
	now = time.Now()
	if err != nil {
		for _, p := range parts {
			p.fetching = false
			s.touch(p, now)
		}
		return err
	}
	s.measure(got)
	var claims []Claim
	var claimed []*partition
	for i, p := range parts {
		if p.dropped {
			p.fetching = false
			continue
		}
		s.take(p, ranges[i], got[i], tails[i], now)
		if n := len(p.entries); n > 0 && p.entries[n-1].offset > p.claimed {
			claims = append(claims, Claim{Lease: p.lease(), Offset: p.entries[n-1].offset})
			claimed = append(claimed, p)
			continue
		}
		p.fetching = false
		s.touch(p, now)
	}
	if len(claims) > 0 {
		return s.claim(t, claims, claimed)
	}
	return nil
}

// measure counts what was read and learns the size of payloads: up at once,
// down by and by.
func (s *Subscription) measure(fetched []Fetched) {
	n, size := 0, 0
	for _, f := range fetched {
		for i := range f.Messages {
			n++
			size += len(f.Messages[i].Payload)
		}
	}
	s.met.fetched.Inc(int64(n))
	s.met.fetchBatch.RecordValue(float64(n))
	if n > 0 {
		s.size = max(size/n, s.size/4)
	}
}

// take inserts what was read.
func (s *Subscription) take(p *partition, r Range, f Fetched, tail uint64, now time.Time) {
	p.insert(f.Messages, now)
	if r.Only != nil {
		p.late = p.late[len(r.Only):]
		return
	}
	if n := len(f.Messages); n > 0 {
		p.fetched = max(p.fetched, f.Messages[n-1].Offset)
	}
	switch {
	case !f.Exhausted:
		p.tail = max(p.tail, p.fetched)
	case r.Through != Unbounded:
		p.fetched = max(p.fetched, r.Through)
	case p.tail == tail: // nothing was announced while we read
		p.tail = max(p.fetched, p.watermark)
		p.fetched = p.tail
	}
	p.tail = max(p.tail, p.fetched)
}

// claim makes it known that messages read beyond the last claim may be handed
// over from now on.
func (s *Subscription) claim(t *tenant, claims []Claim, parts []*partition) error {
	s.mu.Unlock()
	err := s.o.Store.Claim(s.ctx, t.id, claims)
	s.mu.Lock()
	now := time.Now()
	for i, p := range parts {
		p.fetching = false
		if p.dropped {
			continue
		}
		if err == nil {
			p.claimed = max(p.claimed, claims[i].Offset)
		} else {
			p.forget(now)
		}
		s.touch(p, now)
	}
	return err
}
