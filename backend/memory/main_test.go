package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant   = tenants.ID("acme")
	changes  = "changes"
	duration = 10 * time.Second // of leases and heartbeats
)

// bench is a queue whose clock the test moves.
type bench struct {
	testing.TB
	*Queue
	now time.Time
}

func newBench(t testing.TB) *bench {
	b := &bench{TB: t, now: time.UnixMilli(1_700_000_000_000).UTC()}
	q, err := NewQueue(Params{Config: Config{Now: func() time.Time { return b.now }}})
	if err != nil {
		t.Fatal(err)
	}
	b.Queue = q
	return b
}

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

// publish stores one message for each id and returns their offsets.
func (b *bench) publish(key string, ids ...string) []uint64 {
	b.Helper()
	msgs := make([]backend.Message, len(ids))
	for i, id := range ids {
		msgs[i] = change(key, id)
	}
	receipts, err := b.Publish(b.Context(), msgs...)
	if err != nil {
		b.Fatal(err)
	}
	offsets := make([]uint64, len(receipts))
	for i, r := range receipts {
		offsets[i] = r.Offset
	}
	return offsets
}

func change(key, id string) backend.Message {
	return backend.Message{
		Tenant: tenant, Topic: changes, PartitionKey: key, ID: id,
		Payload: []byte("payload of " + id), Metadata: map[string]string{"id": id},
	}
}

// left compares what is stored with want, registrations of groups aside.
func (b *bench) left(want Stats) {
	b.Helper()
	got := b.Stats()
	got.Groups = 0
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("rows stored (-want +got):\n%s", diff)
	}
}

// member is a store with the calls that tests make of it.
type member struct {
	*store
	b *bench
}

// join registers a group, and returns a subscriber that has beaten.
func (b *bench) join(group string, start ...backend.StartPosition) *member {
	b.Helper()
	cfg := backend.SubscriptionConfig{Group: group, SubscriberName: fmt.Sprintf("member-%d", b.tables.instance), LeaseDuration: duration}
	if len(start) > 0 {
		cfg.Start = start[0]
	}
	return b.joinTopic(changes, cfg)
}

func (b *bench) joinTopic(topic string, cfg backend.SubscriptionConfig) *member {
	b.Helper()
	m := &member{b: b, store: b.newStore(topic, cfg.WithDefaults())}
	if err := m.Register(b.Context(), []tenants.ID{tenant}); err != nil {
		b.Fatal(err)
	}
	m.beat()
	return m
}

func (m *member) beat() {
	m.b.Helper()
	if err := m.Beat(m.b.Context(), tenant); err != nil {
		m.b.Fatal(err)
	}
}

func (m *member) acquire(candidates ...engine.Candidate) engine.Acquired {
	m.b.Helper()
	a, err := m.Acquire(m.b.Context(), tenant, candidates)
	if err != nil {
		m.b.Fatal(err)
	}
	return a
}

// take acquires one partition that nobody holds.
func (m *member) take(key string, claim uint64) engine.Grant {
	m.b.Helper()
	a := m.acquire(engine.Candidate{Key: key, Claim: claim})
	if len(a.Grants) != 1 {
		m.b.Fatalf("acquire %q: %+v, want a grant", key, a)
	}
	return a.Grants[0]
}

func (m *member) renew(leases ...engine.Lease) []string {
	m.b.Helper()
	lost, err := m.Renew(m.b.Context(), tenant, leases)
	if err != nil {
		m.b.Fatal(err)
	}
	return lost
}

func (m *member) release(l engine.Lease, forget bool) {
	m.b.Helper()
	if err := m.Release(m.b.Context(), tenant, []engine.Release{{Lease: l, Forget: forget}}); err != nil {
		m.b.Fatal(err)
	}
}

func (m *member) claim(l engine.Lease, offset uint64) {
	m.b.Helper()
	if err := m.Claim(m.b.Context(), tenant, []engine.Claim{{Lease: l, Offset: offset}}); err != nil {
		m.b.Fatal(err)
	}
}

func (m *member) fetch(ranges ...engine.Range) []engine.Fetched {
	m.b.Helper()
	fetched, err := m.Fetch(m.b.Context(), tenant, ranges)
	if err != nil {
		m.b.Fatal(err)
	}
	return fetched
}

// read fetches everything in a partition.
func (m *member) read(key string) []engine.Message {
	m.b.Helper()
	return m.fetch(engine.Range{Key: key, Through: 1 << 62, Limit: 1000})[0].Messages
}

func (m *member) settle(s engine.Settlement) engine.Settled {
	m.b.Helper()
	results, err := m.Settle(m.b.Context(), tenant, []engine.Settlement{s})
	if err != nil {
		m.b.Fatal(err)
	}
	return results[0]
}

func (m *member) collect(p engine.Passed) []string {
	m.b.Helper()
	stale, err := m.Collect(m.b.Context(), tenant, []engine.Passed{p})
	if err != nil {
		m.b.Fatal(err)
	}
	return stale
}

func (m *member) purge() {
	m.b.Helper()
	if err := m.Purge(m.b.Context(), []tenants.ID{tenant}); err != nil {
		m.b.Fatal(err)
	}
}

func (m *member) leave() {
	m.b.Helper()
	if err := m.Leave(m.b.Context(), tenant); err != nil {
		m.b.Fatal(err)
	}
}

func ids(msgs []engine.Message) []string {
	var list []string
	for _, m := range msgs {
		list = append(list, m.ID)
	}
	return list
}

func equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
