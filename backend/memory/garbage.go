package memory

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// maxPurge bounds the partitions that a call of Purge cleans of a tenant.
const maxPurge = 1000

// Collect implements [engine.Store].
func (s *store) Collect(ctx context.Context, tenant tenants.ID, passed []engine.Passed) (stale []string, err error) {
	if _, err := s.lock(ctx, "collect garbage"); err != nil {
		return nil, err
	}
	defer s.tables.mu.Unlock()
	t := s.topic(tenant)
	for _, g := range passed {
		p := t.find(g.Key)
		if p == nil {
			if g.Stored {
				stale = append(stale, g.Key)
			}
			continue
		}
		watermark, stored := t.position(p, s.group)
		if stored != g.Stored || watermark != g.Watermark {
			stale = append(stale, g.Key)
			continue
		}
		t.collect(p)
		if p.messages.Len() == 0 {
			p.dropUnleased()
		}
		t.file(p)
	}
	return stale, nil
}

// Purge implements [engine.Store].
func (s *store) Purge(ctx context.Context, list []tenants.ID) error {
	now, err := s.lock(ctx, "purge")
	if err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	for _, tenant := range list {
		if t := s.topic(tenant); t != nil {
			s.purgePartitions(now, t)
			if g := t.group(s.group); g != nil {
				g.bury(now)
				t.forgetGroup(s.group)
			}
			s.purgeGroups(now, tenant, t)
			s.tables.forget(tenant, s.topicName)
		}
	}
	return nil
}

// purgePartitions removes what this group has left in partitions without
// messages, unless a lease there is held or may be taken back by its owner.
func (s *store) purgePartitions(now time.Time, t *topicTable) {
	purged := 0
	for _, p := range t.drained {
		own := p.progress(s.group)
		if own == nil || own.lease != nil && now.Sub(own.lease.until) <= 2*s.duration {
			continue
		}
		p.drop(s.group)
		t.file(p)
		if purged++; purged == maxPurge {
			return
		}
	}
}

// purgeGroups drops other groups whose subscribers have been away for longer
// than the retention: messages would wait for them for ever.
func (s *store) purgeGroups(now time.Time, tenant tenants.ID, t *topicTable) {
	for name, g := range t.groups {
		if name == s.group || !g.registered || now.Sub(g.seen) <= s.q.config.GroupRetention {
			continue
		}
		t.dropGroup(name)
		s.q.metrics.groupsExpired.Inc(1)
		s.q.logger.Warn("dropped a consumer group that was away for longer than the group retention",
			zap.String("tenant", string(tenant)), zap.String("topic", s.topicName), zap.String("group", name),
			zap.Duration("retention", s.q.config.GroupRetention))
	}
}
