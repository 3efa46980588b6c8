package memory

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Acquire implements [engine.Store].
func (s *store) Acquire(ctx context.Context, tenant tenants.ID, candidates []engine.Candidate) (engine.Acquired, error) {
	now, err := s.lock(ctx, "acquire leases")
	if err != nil {
		return engine.Acquired{}, err
	}
	defer s.tables.mu.Unlock()
	acquired := engine.Acquired{
		Denied: make(map[string]time.Duration),
		// An operator who drops a group that is subscribed gives it all that is
		// stored again.
		Paused: s.register(now, tenant, backend.Earliest).paused,
	}
	t := s.topic(tenant)
	for _, c := range candidates {
		p := t.open(c.Key)
		own := p.openProgress(s.group)
		if left := own.lease.left(now); left > 0 {
			acquired.Denied[c.Key] = left
			continue
		}
		own.lease = s.succeed(own.lease, now, c.Claim)
		t.file(p)

		g := engine.Grant{Lease: engine.Lease{Key: c.Key, Epoch: own.lease.epoch}, Suspect: own.lease.suspect}
		g.Watermark, g.Stored = t.position(p, s.group)
		own.states.Ascend(g.Watermark+1, func(offset uint64, st *state) bool {
			g.States = append(g.States, st.view(offset, now))
			return true
		})
		acquired.Grants = append(acquired.Grants, g)
	}
	return acquired, nil
}

// succeed returns the lease that follows one that has ended, or none.
func (s *store) succeed(old *lease, now time.Time, claim uint64) *lease {
	s.tables.epoch++
	l := &lease{instance: s.instance, epoch: s.tables.epoch, until: now.Add(s.duration), claimed: claim}
	if old != nil {
		l.suspect = max(old.suspect, old.claimed) // no claim is left of one that was released
	}
	return l
}

// held returns this group's progress in a partition if this subscription has
// the lease of that epoch, and nil otherwise. A lease that has run out but that
// nobody took is still its owner's.
func (s *store) held(p *partition, epoch uint64) *progress {
	own := p.progress(s.group)
	if own == nil || own.lease == nil || own.lease.epoch != epoch || own.lease.instance != s.instance {
		return nil
	}
	return own
}

// Renew implements [engine.Store].
func (s *store) Renew(ctx context.Context, tenant tenants.ID, leases []engine.Lease) (lost []string, err error) {
	now, err := s.lock(ctx, "renew leases")
	if err != nil {
		return nil, err
	}
	defer s.tables.mu.Unlock()
	t := s.topic(tenant)
	for _, l := range leases {
		own := s.held(t.find(l.Key), l.Epoch)
		if own == nil {
			lost = append(lost, l.Key)
			continue
		}
		own.lease.released = false
		own.lease.until = now.Add(s.duration)
	}
	return lost, nil
}

// Release implements [engine.Store].
func (s *store) Release(ctx context.Context, tenant tenants.ID, releases []engine.Release) error {
	now, err := s.lock(ctx, "release leases")
	if err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	t := s.topic(tenant)
	for _, r := range releases {
		p := t.find(r.Key)
		own := s.held(p, r.Epoch)
		switch {
		case own == nil:
		case r.Forget:
			own.lease = nil
			t.file(p)
		default:
			own.lease.released = true
			own.lease.until = now
			own.lease.claimed = 0
		}
	}
	return nil
}

// Claim implements [engine.Store].
func (s *store) Claim(ctx context.Context, tenant tenants.ID, claims []engine.Claim) error {
	if _, err := s.lock(ctx, "claim messages"); err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	t := s.topic(tenant)
	for _, c := range claims {
		if own := s.held(t.find(c.Key), c.Epoch); own != nil {
			own.lease.claimed = max(own.lease.claimed, c.Offset)
		}
	}
	return nil
}

func (st *state) view(offset uint64, now time.Time) engine.State {
	return engine.State{
		Offset:     offset,
		Settled:    st.settled,
		Attempts:   st.attempts,
		Deliveries: st.deliveries,
		Delay:      max(st.visible.Sub(now), 0),
		Barrier:    st.barrier,
		Error:      st.err,
	}
}
