package engine

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// modelStore is what the database would hold of one partition and one group,
// by the protocol that Settlement and Settled describe.
type modelStore struct {
	rows      map[uint64]bool // committed messages
	allocated []uint64        // offsets handed out to publishers that have not committed
	next      uint64
	watermark uint64
	stored    bool
	states    map[uint64]State
	claimed   uint64
	acked     map[uint64]int // what handlers acknowledged, for the verdict
	published int
}

func (m *modelStore) above(offset uint64) []uint64 {
	var list []uint64
	for o := range m.rows {
		if o > offset {
			list = append(list, o)
		}
	}
	slices.Sort(list)
	return list
}

// settle is the store's half of the watermark protocol.
func (m *modelStore) settle(t *rapid.T, s Settlement) Settled {
	for _, st := range s.States {
		m.states[st.Offset] = st
	}
	r := Settled{Watermark: m.watermark, Stored: m.stored}
	inside := len(s.Run) > 0 && slices.ContainsFunc(m.allocated, func(o uint64) bool { return o > m.watermark && o < s.Run[len(s.Run)-1] })
	switch {
	case s.Drained:
		for _, o := range s.Run {
			delete(m.rows, o)
		}
		m.watermark, m.stored = 0, false
		clear(m.states)
		return Settled{Drained: true}
	case len(s.Run) == 0:
		return r
	case inside && rapid.Bool().Draw(t, "inserted but not committed"):
		for _, o := range s.Run {
			m.states[o] = State{Offset: o, Settled: true}
		}
		r.Stalled = true
		return r
	}
	last := s.Run[len(s.Run)-1]
	moved := m.watermark
	for _, o := range m.above(m.watermark) {
		if o > last {
			break
		}
		if !slices.Contains(s.Run, o) {
			r.Late = append(r.Late, o)
		} else if len(r.Late) > 0 {
			m.states[o] = State{Offset: o, Settled: true}
		} else {
			moved = o
		}
	}
	for o := range m.rows {
		if o <= moved {
			delete(m.rows, o)
		}
	}
	maps.DeleteFunc(m.states, func(o uint64, _ State) bool { return o <= moved })
	m.watermark, m.stored = moved, true
	return Settled{Watermark: moved, Stored: true, Late: r.Late}
}

// owner drives one partition as the subscription does, one step at a time.
type owner struct {
	*partition
	m      *modelStore
	strict bool
	now    time.Time
	held   []*entry
}

func newOwner(m *modelStore, strict, crashed bool, now time.Time) *owner {
	p := &partition{t: &tenant{s: &Subscription{}}, wakeIndex: -1, watermark: m.watermark, fetched: m.watermark, stored: m.stored, states: maps.Clone(m.states)}
	if crashed {
		p.suspect = m.claimed
	}
	return &owner{partition: p, m: m, strict: strict, now: now}
}

func (o *owner) read(limit int) {
	if o.draining {
		return
	}
	list := o.m.above(o.fetched)
	if len(list) > limit {
		list = list[:limit]
	}
	var msgs []Message
	for _, offset := range append(o.late, list...) {
		if o.m.rows[offset] {
			msgs = append(msgs, Message{Message: backend.Message{Tenant: tenants.ID("t"), Offset: offset}})
		}
	}
	o.late = nil
	o.insert(msgs, o.now)
	if len(list) > 0 {
		o.fetched = list[len(list)-1]
		o.tail = max(o.tail, o.fetched)
		o.claimed = max(o.claimed, o.fetched)
		o.m.claimed = max(o.m.claimed, o.claimed)
	}
}

func (o *owner) deliver(t *rapid.T) bool {
	e, _ := o.next(o.now, o.strict, 1000)
	if e == nil {
		return false
	}
	if o.strict && o.outs > 0 {
		t.Fatalf("offset %d handed over while another is out", e.offset)
	}
	for _, before := range o.entries {
		if before == e {
			break
		}
		if o.strict && before.status != settled && (before.status != writing || before.write != writeAck) {
			t.Fatalf("offset %d handed over before %d", e.offset, before.offset)
		}
	}
	e.status, e.barrier = out, false
	e.deliveries++
	o.outs++
	o.held = append(o.held, e)
	return true
}

func (o *owner) finish(e *entry, outcome string) {
	o.held = slices.DeleteFunc(o.held, func(h *entry) bool { return h == e })
	switch outcome {
	case "ack":
		e.write = writeAck
		o.m.acked[e.offset]++
	case "nack":
		o.fail(e, "", backend.RetryPolicy{MaxAttempts: 1000, InitialBackoff: time.Second, MaxBackoff: time.Second, Multiplier: 1},
			func(d time.Duration) time.Duration { return d }, o.now)
	case "postpone":
		o.unspend(e)
		e.suspect, e.write, e.barrier, e.visibleAt = false, writeFail, true, o.now.Add(time.Second)
		o.failing++
		o.barriers++
	}
	e.status = writing
	o.outs--
	o.writes++
}

func (o *owner) write(t *rapid.T) (drained bool) {
	if o.writes == 0 && o.prefix() == 0 && !o.idle() {
		return false
	}
	s := o.settlement(o.now)
	for _, offset := range s.Run {
		if o.m.acked[offset] == 0 {
			t.Fatalf("run %v settles offset %d, which nobody acknowledged", s.Run, offset)
		}
	}
	r := o.m.settle(t, s)
	o.draining = false
	o.apply(r)
	if r.Stalled {
		o.retryAt = o.now.Add(time.Second)
	}
	return r.Drained
}

// TestWatermarkNeverPassesAnUnsettledMessage runs random publishers (some of
// whom commit late), handlers, crashes and settlements against the model.
func TestWatermarkNeverPassesAnUnsettledMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelStore{rows: map[uint64]bool{}, states: map[uint64]State{}, acked: map[uint64]int{}}
		strict := rapid.Bool().Draw(t, "strict")
		now := time.Now()
		o := newOwner(m, strict, false, now)
		drain := func() {
			if o.write(t) {
				m.claimed = 0 // the lease is gone
				o = newOwner(m, strict, false, o.now)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					m.next++
					m.rows[m.next] = true
					m.published++
				}
			},
			"allocate": func(*rapid.T) {
				m.next++
				m.allocated = append(m.allocated, m.next)
			},
			"commit late": func(t *rapid.T) {
				if len(m.allocated) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.allocated)-1).Draw(t, "which")
				offset := m.allocated[i]
				m.allocated = slices.Delete(m.allocated, i, i+1)
				if offset <= m.watermark { // the publisher's fence: insert again
					m.next++
					offset = m.next
				}
				m.rows[offset] = true
				m.published++
			},
			"read":    func(t *rapid.T) { o.read(rapid.IntRange(1, 5).Draw(t, "limit")) },
			"deliver": func(t *rapid.T) { o.deliver(t) },
			"finish": func(t *rapid.T) {
				if len(o.held) > 0 {
					o.finish(rapid.SampledFrom(o.held).Draw(t, "which"), rapid.SampledFrom([]string{"ack", "ack", "nack", "postpone"}).Draw(t, "outcome"))
				}
			},
			"write": func(*rapid.T) { drain() },
			"wait":  func(*rapid.T) { o.now = o.now.Add(500 * time.Millisecond) },
			"crash": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
					o = newOwner(m, strict, true, o.now)
				}
			},
			"truncate": func(*rapid.T) {
				if len(o.entries) > 0 {
					o.truncate()
				}
			},
			"": func(t *rapid.T) {
				for offset := uint64(1); offset <= m.watermark; offset++ {
					if m.rows[offset] && m.acked[offset] == 0 {
						t.Fatalf("watermark %d has passed offset %d", m.watermark, offset)
					}
				}
			},
		})
		// Let everybody commit and everything be handled.
		for _, offset := range m.allocated {
			if offset <= m.watermark {
				m.next++
				offset = m.next
			}
			m.rows[offset] = true
			m.published++
		}
		m.allocated = nil
		for range 20 * (m.published + 10) {
			if len(m.rows) == 0 {
				break
			}
			o.now = o.now.Add(2 * time.Second)
			for _, offset := range m.above(o.watermark) { // the next listing
				if offset <= o.fetched && !o.known(offset) {
					o.late = append(o.late, offset)
				}
			}
			o.read(10)
			o.deliver(t)
			for len(o.held) > 0 {
				o.finish(o.held[0], "ack")
			}
			drain()
		}
		if len(m.acked) != m.published {
			t.Fatalf("%d of %d messages acknowledged, %d stored, watermark %d", len(m.acked), m.published, len(m.rows), m.watermark)
		}
	})
}
