package memory

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Lag tells how far a group is behind on a topic of one tenant. It returns
// [backend.ErrNotFound] for a group that is not registered there. The queue is
// locked meanwhile, for a look at every partition with messages and at no more
// than [backend.MaxLag] of them.
func (q *Queue) Lag(ctx context.Context, tenant tenants.ID, topic, group string) (lag backend.Lag, err error) {
	err = q.onGroup(ctx, "read the lag of", tenant, topic, group, func(t *topicTable) {
		lag = t.lag(group, q.config.Now())
	})
	return lag, err
}

// Lag implements [engine.Store].
func (s *store) Lag(ctx context.Context, list []tenants.ID) (map[tenants.ID]backend.Lag, error) {
	lags := make(map[tenants.ID]backend.Lag, len(list))
	for _, tenant := range list { // others may go between two of them
		now, err := s.lock(ctx, "read the lag")
		if err != nil {
			return nil, err
		}
		if t := s.topic(tenant); t != nil {
			lags[tenant] = t.lag(s.group, now)
		}
		s.tables.mu.Unlock()
	}
	return lags, nil
}

// Now implements [engine.Store].
func (s *store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.lock(ctx, "read the clock")
	if err != nil {
		return time.Time{}, err
	}
	s.tables.mu.Unlock()
	return now, nil
}

// lag counts what a group has not settled. Once that is more than is counted,
// the first message of each partition left is all that is looked at.
func (t *topicTable) lag(group string, now time.Time) (lag backend.Lag) {
	t.stored.Scan(func(_ string, p *partition) bool {
		watermark, _ := t.position(p, group)
		own := p.progress(group)
		p.messages.Ascend(watermark+1, func(offset uint64, m *message) bool {
			if m.redriven != nil && m.redriven.group != group || own.hasSettled(offset) {
				return true
			}
			lag.Oldest = max(lag.Oldest, now.Sub(time.UnixMilli(m.publishedAt)).Truncate(time.Millisecond))
			if lag.Messages == backend.MaxLag {
				lag.AtLeast = true
				return false
			}
			lag.Messages++
			return true
		})
		return true
	})
	return lag
}

// hasSettled tells whether a group has settled a message ahead of its watermark.
func (g *progress) hasSettled(offset uint64) bool {
	if g == nil {
		return false
	}
	st, ok := g.states.Get(offset)
	return ok && st.settled
}
