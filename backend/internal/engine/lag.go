package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// sampleEvery is how often the lag is read.
	sampleEvery = 15 * time.Second
	// sampleTenants bounds the tenants of one round. With more of them at work
	// each has its turn; the gauges add up what was last read of all.
	sampleTenants = 200
	// sampleChunk is the number of tenants read at a time. Stop waits for one.
	sampleChunk = 20
)

// sample keeps the gauges of the lag, and what is known of the store's clock.
func (s *Subscription) sample() {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	defer s.showLag(nil)
	for {
		s.readClock() // at once: the first deliveries ask for it
		select {
		case <-ticker.C:
		case <-s.stopping:
			return
		}
		s.readLag()
	}
}

// readClock learns how far the store's clock is ahead of ours, to within half a
// round trip.
func (s *Subscription) readClock() {
	asked := time.Now()
	at, err := s.o.Store.Now(s.ctx)
	if err != nil {
		s.faults.report("lag", "", err)
		return
	}
	s.skew.Store(int64(at.Sub(asked.Add(time.Since(asked) / 2))))
}

// age is how old a message is by the store's clock, as well as we know it.
func (s *Subscription) age(m *Message, now time.Time) time.Duration {
	return max(now.Sub(m.PublishedAt)+time.Duration(s.skew.Load()), 0)
}

// readLag reads the lag of tenants with work, those first whose turn is longest
// ago.
func (s *Subscription) readLag() {
	for list := range slices.Chunk(s.toSample(), sampleChunk) {
		select {
		case <-s.stopping:
			return
		default:
		}
		got, err := s.o.Store.Lag(s.ctx, list)
		if err != nil { // what was read before stays
			s.faults.report("lag", "", err)
			return
		}
		now := time.Now()
		s.mu.Lock()
		for _, id := range list {
			if t := s.tenants[id]; t != nil {
				t.lag, t.lagAt = got[id], now
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := make(map[*tenantMetrics]backend.Lag)
	for _, t := range s.tenants {
		if t.active() {
			sum := sums[t.met]
			sums[t.met] = backend.Lag{Messages: sum.Messages + t.lag.Messages, Oldest: max(sum.Oldest, t.lag.Oldest)}
		}
	}
	s.showLag(sums)
}

func (s *Subscription) toSample() []tenants.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*tenant
	for _, t := range s.tenants {
		if t.active() {
			list = append(list, t)
		} else { // the next time begins with nothing
			t.lag, t.lagAt = backend.Lag{}, time.Time{}
		}
	}
	slices.SortFunc(list, func(a, b *tenant) int { return cmp.Or(a.lagAt.Compare(b.lagAt), cmp.Compare(a.id, b.id)) })
	var ids []tenants.ID
	for _, t := range list[:min(len(list), sampleTenants)] {
		ids = append(ids, t.id)
	}
	return ids
}

// showLag sets the gauges, to nothing where sums has none.
func (s *Subscription) showLag(sums map[*tenantMetrics]backend.Lag) {
	for _, m := range s.met.byTenant {
		m.lag.Update(float64(sums[m].Messages))
		m.oldest.Update(sums[m].Oldest.Seconds())
	}
}
