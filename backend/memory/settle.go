package memory

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Settle implements [engine.Store].
func (s *store) Settle(ctx context.Context, tenant tenants.ID, settlements []engine.Settlement) ([]engine.Settled, error) {
	now, err := s.lock(ctx, "settle")
	if err != nil {
		return nil, err
	}
	results := make([]engine.Settled, len(settlements))
	var wakes []engine.Wake
	for i := range settlements {
		var dead []engine.Wake
		results[i], dead = s.settle(now, tenant, &settlements[i])
		wakes = append(wakes, dead...)
	}
	s.tables.mu.Unlock()
	s.q.hub.Notify(wakes...)
	return results, nil
}

func (s *store) settle(now time.Time, tenant tenants.ID, set *engine.Settlement) (engine.Settled, []engine.Wake) {
	t := s.topic(tenant)
	p := t.find(set.Key)
	own := s.held(p, set.Epoch)
	if own == nil {
		return engine.Settled{Lost: true}, nil
	}
	wakes := s.bury(now, tenant, p, set.DeadLetters)
	for _, st := range set.States {
		own.set(now, st)
	}
	var result engine.Settled
	if set.Drained && t.alone(s.group) {
		s.drain(t, p, set.Run)
		result.Drained = true
	} else {
		result.Late = s.advance(t, p, own, set.Run)
		t.collect(p)
		if set.Drained && len(result.Late) == 0 {
			s.part(p, own)
			result.Drained = true
		}
	}
	t.file(p)
	result.Watermark, result.Stored = t.position(p, s.group)
	return result, wakes
}

// drain removes what the only group has settled, and every trace of the group:
// whatever is left was stored after the owner last looked, lies above the base
// position, and is found like the first message of a new partition.
func (s *store) drain(t *topicTable, p *partition, run []uint64) {
	watermark, _ := t.position(p, s.group)
	p.removeThrough(watermark)
	for _, offset := range run {
		p.remove(offset)
	}
	p.drop(s.group)
}

// part gives the lease up where other groups are registered. The watermark stays
// for as long as messages wait for one of them.
func (s *store) part(p *partition, own *progress) {
	own.lease = nil
	if p.messages.Len() == 0 {
		p.drop(s.group)
		p.dropUnleased() // groups that hold a lease find out by themselves
	}
}

// advance moves the watermark behind the run, or before the first message
// between that the owner has not seen; it returns all of those.
func (s *store) advance(t *topicTable, p *partition, own *progress, run []uint64) (late []uint64) {
	if len(run) == 0 {
		return nil
	}
	// What is stored decides, not what the owner remembers: an operator may have
	// dropped the group, and a settlement may come a second time.
	watermark, _ := t.position(p, s.group)
	last, rest := run[len(run)-1], run
	p.messages.Ascend(watermark+1, func(offset uint64, _ *message) bool {
		for len(rest) > 0 && rest[0] < offset {
			rest = rest[1:]
		}
		if offset <= last && rest[0] != offset {
			late = append(late, offset)
		}
		return offset < last
	})

	moved := watermark
	for i, offset := range run {
		if len(late) > 0 && offset > late[0] {
			for _, behind := range run[i:] {
				own.set(time.Time{}, engine.State{Offset: behind, Settled: true})
			}
			break
		}
		moved = max(moved, offset)
	}
	if moved > watermark {
		own.watermark, own.stored = moved, true
	}
	own.forgetThrough(moved)
	return late
}

func (g *progress) set(now time.Time, st engine.State) {
	g.states.Set(st.Offset, &state{
		settled:    st.Settled,
		barrier:    st.Barrier,
		attempts:   st.Attempts,
		deliveries: st.Deliveries,
		visible:    now.Add(st.Delay),
		err:        st.Error,
	})
}
