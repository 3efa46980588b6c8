package engine

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// dispatch hands messages over, one at a time: who is slow to receive holds up
// nothing but receiving.
func (s *Subscription) dispatch() {
	defer close(s.dispatched)
	defer close(s.deliveries)
	for {
		s.mu.Lock()
		d := s.pick(time.Now())
		s.mu.Unlock()
		if d == nil {
			select {
			case <-s.dispatchKick:
			case <-s.stopping:
				return
			}
			continue
		}
		if !s.hand(d) {
			return
		}
	}
}

// hand waits until d is received or revoked. It returns false when stopping.
func (s *Subscription) hand(d *delivery) bool {
	for {
		select {
		case s.deliveries <- d:
			now := time.Now()
			d.p.t.met.delivered.Inc(1)
			if d.attempt == 1 { // later ones waited for a backoff, or an owner that vanished
				s.met.deliveryAge.RecordDuration(s.age(d.msg, now))
			}
			s.mu.Lock()
			s.received(d, now)
			s.mu.Unlock()
			return true
		case <-s.stopping:
			s.mu.Lock()
			s.unpick()
			s.mu.Unlock()
			return false
		case <-s.dispatchKick:
			s.mu.Lock()
			gone := d.over
			if !gone && (d.p.leaving || d.p.t.paused) {
				s.unpick()
				gone = true
			}
			if gone {
				s.pending = nil
			}
			s.mu.Unlock()
			if gone {
				return true
			}
		}
	}
}

// received starts what begins with the receiver, if he has not settled yet: the
// visibility timeout, and the charge of a suspect.
func (s *Subscription) received(d *delivery, now time.Time) {
	s.pending = nil
	if d.done || d.over {
		return
	}
	if !d.extended {
		d.e.deadline = now.Add(s.o.Config.VisibilityTimeout)
	}
	if d.charged != nil {
		d.e.charge = chargeWanted
		d.p.writes++
		s.touch(d.p, now)
	}
}

// pick chooses the next message: tenants in turn, each by its weight (a deficit
// round robin; Shreedhar and Varghese, Efficient Fair Queuing using Deficit
// Round-Robin, SIGCOMM 1995, with a cost of one a message), and within a tenant
// its ready partitions in turn.
func (s *Subscription) pick(now time.Time) *delivery {
	for passed := 0; !s.halted && s.inflight < s.o.Config.MaxInFlight && passed < s.ring.len(); {
		t := s.ring.items[s.ring.head]
		if !s.admits(t) {
			s.ring.push(s.ring.pop())
			passed++
			continue
		}
		if t.paused || t.ready.len() == 0 {
			s.ring.pop()
			t.inRing, t.credit = false, t.weight
			if s.hungry(t) {
				s.offer(t)
			}
			continue
		}
		p := t.ready.pop()
		p.inReady = false
		if p.dropped || p.leaving || p.draining {
			continue
		}
		if !p.expires.After(now) {
			s.lose(p)
			continue
		}
		e, _ := p.next(now, s.strict(), s.o.Config.Retry.MaxAttempts)
		if e == nil {
			s.touch(p, now)
			continue
		}
		if t.credit--; t.credit <= 0 {
			t.credit = t.weight
			s.ring.pop()
			s.ring.push(t)
		}
		d := s.begin(p, e, now)
		s.touch(p, now)
		if t.ready.len() < s.target()/2 && s.hungry(t) {
			s.offer(t)
		}
		return d
	}
	return nil
}

// admits tells whether a tenant may have one more message in flight. The last
// eighth of them is kept for tenants that have fewer than that: who has little
// to do need not wait for handlers, or for answers to be written, of those who
// have much.
func (s *Subscription) admits(t *tenant) bool {
	reserve := s.o.Config.MaxInFlight / 8
	return len(s.list) == 1 || t.inflight < reserve || s.o.Config.MaxInFlight-s.inflight > reserve
}

// begin makes the delivery of an entry.
func (s *Subscription) begin(p *partition, e *entry, now time.Time) *delivery {
	e.deliveries++
	d := &delivery{s: s, p: p, e: e, msg: e.msg.clone(), attempt: e.deliveries}
	if e.suspect {
		e.attempts++
		e.charged, e.charge = true, uncharged
		d.charged = make(chan struct{})
	}
	d.ctx, d.cancel = context.WithCancelCause(s.ctx)
	e.d, e.status, e.barrier = d, out, false
	e.deadline = now.Add(s.o.Config.VisibilityTimeout)
	p.outs++
	s.inflight++
	p.t.inflight++
	s.pending = d
	s.alarm(p, e.deadline)
	return d
}

// unpick takes the pending delivery back: nobody has received it.
func (s *Subscription) unpick() {
	d := s.pending
	s.pending = nil
	if d == nil || d.over {
		return
	}
	p, e := d.p, d.e
	s.supersede(p, e, backend.ErrClosed)
	p.unspend(e)
	e.status = waiting
	if i, ok := p.find(e.offset); ok {
		p.scan = min(p.scan, i)
	}
	s.touch(p, time.Now())
}

// watchAlarms looks after partitions whose time has come.
func (s *Subscription) watchAlarms() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := time.Now()
		for p := s.alarms.due(now); p != nil; p = s.alarms.due(now) {
			s.attend(p, now)
		}
		wait := time.Hour
		if len(s.alarms) > 0 {
			wait = s.alarms[0].wakeAt.Sub(now)
		}
		s.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.alarmKick:
		case <-s.quitting:
			return
		}
	}
}

// attend ends visibility timeouts, gives up a lease that was not renewed, and
// goes on with whatever waited.
func (s *Subscription) attend(p *partition, now time.Time) {
	if p.dropped {
		return
	}
	if !p.expires.After(now) {
		s.lose(p)
		return
	}
	next := p.expires
	if p.outs > 0 {
		for _, e := range p.entries {
			if e.status != out {
				continue
			}
			if e.deadline.After(now) {
				if e.deadline.Before(next) {
					next = e.deadline
				}
				continue
			}
			if e.d == s.pending { // not received yet
				e.deadline = now.Add(s.o.Config.VisibilityTimeout)
				continue
			}
			s.met.lapses.Inc(1)
			s.supersede(p, e, backend.ErrLeaseLost)
			p.fail(e, "visibility timeout of "+s.o.Config.VisibilityTimeout.String()+" ended without an answer",
				s.o.Config.Retry, func(time.Duration) time.Duration { return 0 }, now)
			e.status = writing
			p.writes++
		}
	}
	s.alarm(p, next)
	s.touch(p, now)
}
