package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// script is a store whose database is well, but for what a test makes of it: a
// hook that is set runs first, and its error is the answer. Databases are
// tested elsewhere; here it is about what the engine makes of one that is slow,
// locked or away.
type script struct {
	mu        sync.Mutex
	messages  map[tenants.ID]map[string][]engine.Message
	keys      map[tenants.ID][]string   // sorted, once used
	states    map[string][]engine.State // a group's, by partition key, when it acquires
	members   []string
	keep      bool   // another group waits for all messages
	suspect   uint64 // an owner vanished that may have handed over up to here
	fetched   int    // bytes
	released  []engine.Release
	collected []engine.Passed

	scope tally.Scope // nil: none
	log   *zap.Logger // likewise
	named int         // tenants, in metrics

	onDiscover func() error
	onControl  func(context.Context) error
	onBeat     func(context.Context, tenants.ID) error
	onLag      func([]tenants.ID) (map[tenants.ID]backend.Lag, error)
	onNow      func() (time.Time, error)
	onAcquire  func(tenants.ID, []engine.Candidate) error
	onRenew    func(tenants.ID, []engine.Lease) error
	onClaim    func(tenants.ID, []engine.Claim) error
	onSettle   func(tenants.ID, []engine.Settlement) ([]engine.Settled, error)
	onRelease  func(context.Context, tenants.ID, []engine.Release) error
	discovers  int
}

// put stores n messages in a partition.
func (s *script) put(tenant tenants.ID, key string, n, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.messages == nil {
		s.messages, s.keys = make(map[tenants.ID]map[string][]engine.Message), make(map[tenants.ID][]string)
	}
	if s.messages[tenant] == nil {
		s.messages[tenant] = make(map[string][]engine.Message)
	}
	if i, ok := slices.BinarySearch(s.keys[tenant], key); !ok {
		s.keys[tenant] = slices.Insert(s.keys[tenant], i, key)
	}
	for range n {
		offset := uint64(len(s.messages[tenant][key]) + 1)
		s.messages[tenant][key] = append(s.messages[tenant][key], engine.Message{Message: backend.Message{
			Tenant: tenant, Topic: "topic", PartitionKey: key, ID: fmt.Sprint(offset), Offset: offset, Payload: make([]byte, size),
		}})
	}
}

// start subscribes to the tenants listed. It is for use in a bubble.
func (s *script) start(t *testing.T, cfg backend.SubscriptionConfig, list ...tenants.ID) (*engine.Subscription, *engine.Hub) {
	t.Helper()
	set, err := tenants.New(list...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Group, cfg.SubscriberName = "group", "me"
	hub := new(engine.Hub)
	sub, err := engine.Start(t.Context(), engine.Options{
		Topic: "topic", Config: cfg.WithDefaults(), Tenants: set, Store: s, Hub: hub, Logger: s.log, Scope: s.scope, TenantMetrics: s.named,
	})
	if err != nil {
		t.Fatal(err)
	}
	return sub, hub
}

func (s *script) Register(context.Context, []tenants.ID) error { return nil }

func (s *script) Discover(_ context.Context, list []tenants.ID, after string, limit int) (found []engine.Stored, err error) {
	if s.onDiscover != nil {
		if err := s.onDiscover(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discovers++
	for _, id := range slices.Sorted(slices.Values(list)) {
		keys := s.keys[id]
		first, there := slices.BinarySearch(keys, after)
		if there {
			first++
		}
		for _, key := range keys[first:] {
			if messages := s.messages[id][key]; len(messages) > 0 && len(found) < limit {
				found = append(found, engine.Stored{Tenant: id, Key: key, Head: messages[0].Offset, Tail: messages[len(messages)-1].Offset})
			}
		}
	}
	return found, nil
}

func (s *script) Control(ctx context.Context, list []tenants.ID) (map[tenants.ID]engine.Control, error) {
	if s.onControl != nil {
		if err := s.onControl(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	control := make(map[tenants.ID]engine.Control)
	for _, id := range list {
		control[id] = engine.Control{Members: slices.Clone(s.members)}
	}
	return control, nil
}

func (s *script) Acquire(_ context.Context, tenant tenants.ID, candidates []engine.Candidate) (engine.Acquired, error) {
	if s.onAcquire != nil {
		if err := s.onAcquire(tenant, candidates); err != nil {
			return engine.Acquired{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var got engine.Acquired
	for _, c := range candidates {
		got.Grants = append(got.Grants, engine.Grant{Lease: engine.Lease{Key: c.Key, Epoch: 1}, Suspect: s.suspect, States: slices.Clone(s.states[c.Key])})
	}
	return got, nil
}

func (s *script) Renew(_ context.Context, tenant tenants.ID, leases []engine.Lease) ([]string, error) {
	if s.onRenew != nil {
		return nil, s.onRenew(tenant, leases)
	}
	return nil, nil
}

func (s *script) Release(ctx context.Context, tenant tenants.ID, releases []engine.Release) error {
	if s.onRelease != nil {
		if err := s.onRelease(ctx, tenant, releases); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, releases...)
	return nil
}

func (s *script) Claim(_ context.Context, tenant tenants.ID, claims []engine.Claim) error {
	if s.onClaim != nil {
		return s.onClaim(tenant, claims)
	}
	return nil
}

func (s *script) Fetch(_ context.Context, tenant tenants.ID, ranges []engine.Range) ([]engine.Fetched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]engine.Fetched, len(ranges))
	for i, r := range ranges {
		f := engine.Fetched{Key: r.Key, Exhausted: true}
		for _, m := range s.messages[tenant][r.Key] {
			if r.Only != nil && !slices.Contains(r.Only, m.Offset) || r.Only == nil && (m.Offset <= r.After || m.Offset > r.Through) {
				continue
			}
			if len(f.Messages) == r.Limit {
				f.Exhausted = false
				break
			}
			f.Messages = append(f.Messages, m)
			s.fetched += len(m.Payload)
		}
		all[i] = f
	}
	return all, nil
}

func (s *script) Settle(_ context.Context, tenant tenants.ID, list []engine.Settlement) ([]engine.Settled, error) {
	if s.onSettle != nil {
		if results, err := s.onSettle(tenant, list); results != nil || err != nil {
			return results, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]engine.Settled, len(list))
	for i, p := range list {
		r := engine.Settled{Watermark: p.Watermark, Stored: true, Drained: p.Drained}
		if n := len(p.Run); n > 0 {
			r.Watermark = p.Run[n-1]
		}
		if !s.keep {
			s.messages[tenant][p.Key] = slices.DeleteFunc(s.messages[tenant][p.Key], func(m engine.Message) bool { return m.Offset <= r.Watermark })
		}
		results[i] = r
	}
	return results, nil
}

func (s *script) Lag(_ context.Context, list []tenants.ID) (map[tenants.ID]backend.Lag, error) {
	if s.onLag != nil {
		return s.onLag(list)
	}
	return nil, nil
}

func (s *script) Now(context.Context) (time.Time, error) {
	if s.onNow != nil {
		return s.onNow()
	}
	return time.Now(), nil
}

func (s *script) Beat(ctx context.Context, tenant tenants.ID) error {
	if s.onBeat != nil {
		return s.onBeat(ctx, tenant)
	}
	return nil
}

func (s *script) Leave(context.Context, tenants.ID) error   { return nil }
func (s *script) Purge(context.Context, []tenants.ID) error { return nil }
func (s *script) Collect(_ context.Context, _ tenants.ID, passed []engine.Passed) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collected = append(s.collected, passed...)
	return nil, nil
}
