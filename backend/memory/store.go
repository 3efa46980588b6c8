package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// store implements [engine.Store] for one subscription. Its methods lock the
// queue's tables for as long as they run, which makes each a transaction.
type store struct {
	q          *Queue
	tables     *tables
	topicName  string
	deadLetter string // topic; empty if they are dropped
	group      string
	name       string
	start      backend.StartPosition
	duration   time.Duration // of leases and heartbeats

	// instance tells this subscription's leases from those of another one that
	// has the same name.
	instance uint64
}

var _ engine.Store = (*store)(nil)

func (q *Queue) newStore(topic string, cfg backend.SubscriptionConfig) *store {
	q.tables.mu.Lock()
	defer q.tables.mu.Unlock()
	q.tables.instance++
	s := &store{
		q:         q,
		tables:    q.tables,
		topicName: topic,
		group:     cfg.Group,
		name:      cfg.SubscriberName,
		start:     cfg.Start,
		duration:  cfg.LeaseDuration,
		instance:  q.tables.instance,
	}
	if !cfg.DeadLetter.Disabled {
		s.deadLetter = cfg.DeadLetterTopic(topic)
	}
	return s
}

// lock begins a transaction; the caller unlocks mu.
func (s *store) lock(ctx context.Context, doing string) (now time.Time, err error) {
	err = ctx.Err()
	if s.q.severed.Load() {
		err = errSevered
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: topic %s, group %s: %w", doing, s.topicName, s.group, err)
	}
	s.tables.mu.Lock()
	return s.q.config.Now(), nil
}

// topic returns nil for a tenant without rows.
func (s *store) topic(tenant tenants.ID) *topicTable { return s.tables.topic(tenant, s.topicName) }

// register returns the group, which is new to a tenant when it first
// subscribes, and again when an operator dropped it meanwhile.
func (s *store) register(now time.Time, tenant tenants.ID, start backend.StartPosition) *group {
	g := s.tables.openTopic(tenant, s.topicName).openGroup(s.group)
	g.seen = now
	if !g.registered {
		g.registered = true
		if start == backend.Latest {
			g.base = s.tables.offset
		}
	}
	return g
}

// Register implements [engine.Store].
func (s *store) Register(ctx context.Context, list []tenants.ID) error {
	now, err := s.lock(ctx, "register")
	if err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	for _, tenant := range list {
		s.register(now, tenant, s.start)
	}
	return nil
}

// Discover implements [engine.Store].
func (s *store) Discover(ctx context.Context, list []tenants.ID, after string, limit int) ([]engine.Stored, error) {
	if _, err := s.lock(ctx, "discover partitions"); err != nil {
		return nil, err
	}
	defer s.tables.mu.Unlock()
	if len(list) != 1 {
		after = ""
	}
	var found []engine.Stored
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(list))) {
		t := s.topic(tenant)
		if t == nil {
			continue
		}
		t.stored.Ascend(after, func(key string, p *partition) bool {
			if len(found) == limit {
				return false
			}
			if key != after {
				head, _, _ := p.messages.Min()
				tail, _, _ := p.messages.Max()
				found = append(found, engine.Stored{Tenant: tenant, Key: key, Head: head, Tail: tail})
			}
			return true
		})
	}
	return found, nil
}

// Control implements [engine.Store].
func (s *store) Control(ctx context.Context, list []tenants.ID) (map[tenants.ID]engine.Control, error) {
	now, err := s.lock(ctx, "read the members")
	if err != nil {
		return nil, err
	}
	defer s.tables.mu.Unlock()
	controls := make(map[tenants.ID]engine.Control, len(list))
	for _, tenant := range list {
		g := s.topic(tenant).group(s.group)
		if g == nil {
			continue
		}
		c := engine.Control{Paused: g.paused}
		for _, name := range slices.Sorted(maps.Keys(g.members)) {
			if g.members[name].After(now) {
				c.Members = append(c.Members, name)
			}
		}
		controls[tenant] = c
	}
	return controls, nil
}

// Beat implements [engine.Store].
func (s *store) Beat(ctx context.Context, tenant tenants.ID) error {
	now, err := s.lock(ctx, "heartbeat")
	if err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	g := s.tables.openTopic(tenant, s.topicName).openGroup(s.group)
	g.seen = now
	g.members[s.name] = now.Add(s.duration)
	g.bury(now)
	return nil
}

// bury removes the heartbeats that have ended.
func (g *group) bury(now time.Time) {
	maps.DeleteFunc(g.members, func(_ string, until time.Time) bool { return !until.After(now) })
}

// Leave implements [engine.Store].
func (s *store) Leave(ctx context.Context, tenant tenants.ID) error {
	if _, err := s.lock(ctx, "leave"); err != nil {
		return err
	}
	defer s.tables.mu.Unlock()
	t := s.topic(tenant)
	if g := t.group(s.group); g != nil {
		delete(g.members, s.name)
		t.forgetGroup(s.group)
		s.tables.forget(tenant, s.topicName)
	}
	return nil
}

// Fetch implements [engine.Store].
func (s *store) Fetch(ctx context.Context, tenant tenants.ID, ranges []engine.Range) ([]engine.Fetched, error) {
	if _, err := s.lock(ctx, "fetch"); err != nil {
		return nil, err
	}
	rows := make([][]*message, len(ranges))
	fetched := make([]engine.Fetched, len(ranges))
	t := s.topic(tenant)
	for i, r := range ranges {
		fetched[i].Key = r.Key
		rows[i], fetched[i].Exhausted = t.find(r.Key).read(r)
	}
	s.tables.mu.Unlock()

	for i, list := range rows {
		at := backend.Message{Tenant: tenant, Topic: s.topicName, PartitionKey: ranges[i].Key}
		for _, m := range list {
			fetched[i].Messages = append(fetched[i].Messages, m.view(at, s.group))
		}
	}
	return fetched, nil
}

// read returns the messages of a range, and whether there are no more in it.
func (p *partition) read(r engine.Range) (list []*message, exhausted bool) {
	if p == nil {
		return nil, true
	}
	if r.Only != nil {
		for _, offset := range slices.Sorted(slices.Values(r.Only)) {
			if m, ok := p.messages.Get(offset); ok {
				list = append(list, m)
			}
		}
		return list, true
	}
	exhausted = true
	if r.After < r.Through {
		p.messages.Ascend(r.After+1, func(offset uint64, m *message) bool {
			if offset > r.Through {
				return false
			}
			if len(list) == r.Limit {
				exhausted = false
				return false
			}
			list = append(list, m)
			return true
		})
	}
	return list, exhausted
}
