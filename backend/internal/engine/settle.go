package engine

import (
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
)

// Bounds of one settlement transaction.
const (
	settlePartitions = 100
	settleRows       = MaxRun
)

// settle writes outcomes. While one transaction of a tenant is under way the
// next one's outcomes gather: the busier, the larger the batches.
func (s *Subscription) settle() {
	for {
		s.mu.Lock()
		for !s.quit && s.settles.len() == 0 {
			s.toSettle.Wait()
		}
		if s.settles.len() == 0 {
			s.mu.Unlock()
			return
		}
		// Handlers that end at the same moment come along: without it the first
		// goes alone, and the others after it. Of 3,000 messages with 8 in flight
		// that took 750 transactions, with it 470.
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		if s.settles.len() == 0 {
			s.mu.Unlock()
			continue
		}
		t := s.settles.pop()
		t.inSettle = false
		parts, batch := s.collect(t, time.Now())
		if len(batch) == 0 {
			s.mu.Unlock()
			continue
		}
		isolated := 0
		if parts[0].failures > 0 {
			isolated = 1
		}
		messages := 0
		for i := range batch {
			messages += len(batch[i].Run) + len(batch[i].States)
		}
		t.settlers++
		t.isolated += isolated
		if t.dirty.len() > 0 {
			s.offerSettle(t)
		}
		s.mu.Unlock()

		started := time.Now()
		results, err := s.o.Store.Settle(s.ctx, t.id, batch)
		s.met.settleDuration.RecordDuration(time.Since(started))
		s.met.settleBatch.RecordValue(float64(messages))

		s.mu.Lock()
		if err != nil {
			s.unsettled(parts, err)
		} else {
			s.settled(t, parts, batch, results)
		}
		t.settlers--
		t.isolated -= isolated
		if t.dirty.len() > 0 {
			s.offerSettle(t)
		}
		s.mu.Unlock()
	}
}

// collect takes what a transaction is to write.
func (s *Subscription) collect(t *tenant, now time.Time) (parts []*partition, batch []Settlement) {
	rows := 0
	for n := t.dirty.len(); n > 0 && len(batch) < settlePartitions && rows < settleRows; n-- {
		p := t.dirty.pop()
		if p.failures > 0 && len(batch)+t.isolated > 0 && !p.dropped {
			t.dirty.push(p) // alone: it may be what fails the others
			continue
		}
		p.inDirty = false
		if p.dropped || !s.wantsSettle(p, now) {
			continue
		}
		p.settling = true
		b := p.settlement(now)
		parts, batch = append(parts, p), append(batch, b)
		rows += len(b.Run) + len(b.States) + len(b.DeadLetters)
		if p.failures > 0 {
			break
		}
	}
	return parts, batch
}

// settled takes over what was written and answers whoever waits for it.
func (s *Subscription) settled(t *tenant, parts []*partition, batch []Settlement, results []Settled) {
	now := time.Now()
	for i, p := range parts {
		r := results[i]
		p.settling, p.draining = false, false
		switch {
		case r.Lost:
			s.lose(p)
			s.answerSent(p, backend.ErrLeaseLost)
			continue
		case p.dropped: // the lease ran out by our clock while this was written
			s.answerSent(p, nil)
			continue
		}
		t.met.deadLetters.Inc(int64(len(batch[i].DeadLetters)))
		for _, dl := range batch[i].DeadLetters {
			s.logDeadLetter(dl)
		}
		p.failures = 0
		answered := p.apply(r)
		for _, d := range answered {
			t.met.settled[d.verb].Inc(1)
			d.result <- nil
		}
		s.land(t, len(answered))
		switch {
		case r.Drained:
			s.drained(t, p, r, now)
			continue
		case r.Stalled:
			s.met.stalls.Inc(1)
			p.stalls++
			p.retryAt = now.Add(min(stallStep<<min(p.stalls, 6), time.Second))
		default:
			p.stalls, p.retryAt = 0, time.Time{}
		}
		s.touch(p, now)
	}
}

// stallStep is half the first wait for a publisher that is inside the range
// the watermark wants to pass.
const stallStep = 5 * time.Millisecond

// drained takes leave of a partition, and takes it up again if something came
// in meanwhile.
func (s *Subscription) drained(t *tenant, p *partition, r Settled, now time.Time) {
	tail, fetched, late := p.tail, p.fetched, p.late
	s.drop(p)
	if r.Watermark > 0 { // its messages may stay, for other groups or for the collector
		t.passed[p.key] = passed{watermark: r.Watermark, stored: r.Stored}
	}
	if s.looking {
		s.recent[partKey{t.id, p.key}] = fetched
	}
	switch {
	case len(late) > 0:
		s.want(t, p.key, late[0], max(tail, late[0]), now)
	case tail > fetched:
		s.want(t, p.key, fetched+1, tail, now)
	}
}

// unsettled puts everything back: the store had an error, what was written is
// not known, and all of it can be written again.
func (s *Subscription) unsettled(parts []*partition, err error) {
	now := time.Now()
	for _, p := range parts {
		p.settling, p.draining = false, false
		if p.dropped {
			s.answerSent(p, backend.ErrLeaseLost) // perhaps not, but nobody can tell
			continue
		}
		for _, e := range p.entries {
			if e.sent {
				e.sent = false
				p.writes++
			}
			if e.charge == chargeSent {
				e.charge = chargeWanted
				p.writes++
			}
		}
		p.failures++
		p.holdUntil = now.Add(s.faults.pause())
		s.touch(p, now)
	}
	if len(parts) > 0 {
		s.faults.report("settle", parts[0].t.id, err)
	}
}

func (s *Subscription) logDeadLetter(dl DeadLetter) {
	m := &dl.Message
	fields := []zap.Field{
		zap.String("tenant", string(m.Tenant)), zap.String("partition_key", m.PartitionKey), zap.String("id", m.ID),
		zap.Uint64("offset", m.Offset), zap.Int("attempts", dl.Attempts), zap.String("error", firstLine(dl.Error)),
	}
	if s.o.Config.DeadLetter.Disabled {
		s.o.Logger.Error("message given up and dropped: dead letters are disabled", fields...)
		return
	}
	s.o.Logger.Warn("message dead-lettered", append(fields, zap.String("to", s.o.Config.DeadLetterTopic(m.Topic)))...)
}

var _ backend.Subscription = (*Subscription)(nil)
