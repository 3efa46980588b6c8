package engine

import "time"

// settlement takes what is to be written now.
func (p *partition) settlement(now time.Time) Settlement {
	s := Settlement{Lease: p.lease(), Watermark: p.watermark, Stored: p.stored, HasStates: p.hasStates}
	run := min(p.prefix(), MaxRun)
	if p.retryAt.After(now) {
		run = 0 // a publisher was inside; settle ahead of the watermark meanwhile
	}
	p.writes = 0
	for i, e := range p.entries {
		if i < run {
			s.Run = append(s.Run, e.offset)
		}
		wanted := e.status == out && e.charge == chargeWanted
		if e.status != writing && !wanted {
			continue
		}
		if len(s.States) >= MaxRun {
			p.writes++
			continue
		}
		if wanted {
			// Without the delivery that is out: whoever finds the state counts it
			// as one that nobody answered for.
			e.charge = chargeSent
			s.States = append(s.States, State{Offset: e.offset, Attempts: e.attempts, Deliveries: e.deliveries - 1, Error: e.lastError})
			continue
		}
		e.sent = true
		if e.dead {
			s.DeadLetters = append(s.DeadLetters, DeadLetter{Message: e.msg.Message, Attempts: e.attempts, Error: e.lastError})
		}
		if i < run {
			continue
		}
		st := State{Offset: e.offset, Settled: e.write == writeAck, Attempts: e.attempts, Deliveries: e.deliveries, Barrier: e.barrier, Error: e.lastError}
		if e.write == writeFail {
			st.Delay = max(e.visibleAt.Sub(now), time.Millisecond)
		}
		s.States = append(s.States, st)
	}
	p.hasStates = p.hasStates || len(s.States) > 0
	s.Drained = run == len(p.entries) && p.outs == 0 && p.exhausted() && !p.retryAt.After(now)
	p.draining = s.Drained
	return s
}

// apply takes over what a settlement has written and returns the deliveries
// that are answered by it.
func (p *partition) apply(r Settled) (answered []*delivery) {
	p.watermark, p.stored = r.Watermark, r.Stored
	keep := p.entries[:0]
	for _, e := range p.entries {
		if e.charge == chargeSent {
			e.charge, e.stored = chargeWritten, true
			e.d.disclose()
		}
		if e.sent {
			e.sent, e.charge = false, uncharged
			if e.write == writeFail {
				p.failing--
				if e.barrier {
					p.barriers--
				}
			}
			if e.d != nil {
				answered = append(answered, e.d)
				e.d = nil
			}
			e.stored = true
			if e.write == writeAck {
				e.status = settled
				p.unload(e)
			} else {
				e.status = waiting
			}
		}
		if e.offset <= p.watermark || r.Drained {
			p.unload(e)
			continue
		}
		keep = append(keep, e)
	}
	clear(p.entries[len(keep):])
	p.entries = keep
	if len(keep) == 0 {
		p.entries = nil
		p.hasStates = len(p.states) > 0
	}
	p.scan = 0
	for _, offset := range r.Late {
		if !p.known(offset) {
			p.late = append(p.late, offset)
		}
	}
	p.hasStates = p.hasStates || r.Stalled || len(r.Late) > 0 // the run went into states
	return answered
}
