package memory

import (
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestLeaseHasOneOwner(t *testing.T) {
	b := newBench(t)
	one, two, other := b.join("landers"), b.join("landers"), b.join("watchers")
	b.publish("key", "id")
	first := one.take("key", 0)
	other.take("key", 0) // leases of another group have nothing to do with it

	b.pass(duration / 4)
	for _, m := range []*member{one, two} {
		a := m.acquire(engine.Candidate{Key: "key"})
		equal(t, "acquired while held", engine.Acquired{Denied: map[string]time.Duration{"key": duration * 3 / 4}}, a)
	}
	equal(t, "lost", nil, one.renew(first.Lease))
	b.pass(duration - 1)
	if a := two.acquire(engine.Candidate{Key: "key"}); len(a.Grants) != 0 {
		t.Error("granted although it was renewed")
	}
	b.pass(1)
	if second := two.take("key", 0); second.Epoch <= first.Epoch {
		t.Errorf("epoch %d does not follow %d", second.Epoch, first.Epoch)
	}
}

func TestEpochOutlivesItsLease(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.publish("key", "id")
	var last uint64
	for _, forget := range []bool{true, false, true, true} {
		grant := m.take("key", 0)
		if grant.Epoch <= last {
			t.Errorf("epoch %d does not follow %d", grant.Epoch, last)
		}
		last = grant.Epoch
		m.release(grant.Lease, forget)
	}
}

func TestStaleOwnerWritesNothing(t *testing.T) {
	b := newBench(t)
	stale := b.join("landers")
	offsets := b.publish("key", "a", "b")
	old := stale.take("key", offsets[0])
	b.pass(duration)
	owner := b.join("landers")
	grant := owner.take("key", offsets[0])
	second := owner.take("other", 0)

	writesNothing := func(m *member, l engine.Lease) {
		t.Helper()
		before := b.Stats()
		m.claim(l, offsets[1])
		m.release(l, true)
		m.release(l, false)
		equal(t, "renewals lost", []string{l.Key}, m.renew(l))
		r := m.settle(engine.Settlement{
			Lease: l, Run: offsets, Drained: true,
			States:      []engine.State{{Offset: offsets[1], Attempts: 1}},
			DeadLetters: []engine.DeadLetter{{Message: m.read("key")[0].Message}},
		})
		equal(t, "settlement", engine.Settled{Lost: true}, r)
		equal(t, "rows", before, b.Stats())
	}
	writesNothing(stale, old.Lease)
	// Not even with the owner's epoch: two may have one name, never one lease.
	writesNothing(stale, grant.Lease)
	// Nor the owner itself with an epoch of the past, or of another partition.
	b.pass(duration)
	again := owner.take("key", offsets[0])
	writesNothing(owner, grant.Lease)
	writesNothing(owner, engine.Lease{Key: "key", Epoch: second.Epoch})
	writesNothing(owner, engine.Lease{Key: "nothing", Epoch: again.Epoch})

	b.pass(duration)
	equal(t, "suspect", offsets[0], stale.take("key", 0).Suspect)
}

// A lease that ran out is still its owner's until somebody takes it: slow is
// not dead.
func TestLateOwnerKeepsWhatNobodyTook(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	offsets := b.publish("key", "a", "b")
	grant := m.take("key", offsets[1])
	b.pass(2 * duration)
	r := m.settle(engine.Settlement{Lease: grant.Lease, Run: offsets[:1]})
	equal(t, "settlement", engine.Settled{Watermark: offsets[0], Stored: true}, r)
	equal(t, "renewals lost", nil, m.renew(grant.Lease))
	if a := b.join("landers").acquire(engine.Candidate{Key: "key"}); len(a.Grants) != 0 {
		t.Error("granted although it was renewed")
	}
}

func TestVanishedOwnerLeavesSuspects(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.publish("key", "a", "b", "c", "d")

	first := m.take("key", 1)
	equal(t, "suspect of a new lease", uint64(0), first.Suspect)
	m.claim(first.Lease, 3)
	m.claim(first.Lease, 2) // never lowered
	b.pass(duration)

	second := m.take("key", 2)
	equal(t, "suspect after one vanished", uint64(3), second.Suspect)
	m.release(second.Lease, false)

	third := m.take("key", 4)
	equal(t, "suspect after a release", uint64(3), third.Suspect)
	b.pass(duration)
	equal(t, "suspect after two vanished", uint64(4), m.take("key", 0).Suspect)
}

func TestReleasedLeaseIsTakenAtOnce(t *testing.T) {
	for _, forget := range []bool{false, true} {
		b := newBench(t)
		m := b.join("landers")
		b.publish("key", "a")
		grant := m.take("key", 1)
		m.release(grant.Lease, forget)
		leases := 1
		if forget {
			leases = 0
		}
		b.left(Stats{Messages: 1, Leases: leases, Heartbeats: 1})
		equal(t, "suspect", uint64(0), b.join("landers").take("key", 1).Suspect)
	}
}

func TestGrantTellsWhatTheGroupKnows(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b", "c", "d")
	first := m.take("key", o[3])
	states := []engine.State{
		{Offset: o[1], Attempts: 2, Deliveries: 3, Delay: time.Minute, Error: "no"},
		{Offset: o[2], Settled: true, Deliveries: 1},
		{Offset: o[3], Barrier: true, Delay: 2 * time.Second},
	}
	r := m.settle(engine.Settlement{Lease: first.Lease, Run: o[:1], States: states})
	equal(t, "settlement", engine.Settled{Watermark: o[0], Stored: true}, r)
	m.release(first.Lease, false)
	b.pass(3 * time.Second)

	states[0].Delay, states[2].Delay = time.Minute-3*time.Second, 0
	second := b.join("landers").take("key", 0)
	equal(t, "grant", engine.Grant{
		Lease: second.Lease, Watermark: o[0], Stored: true, States: states,
	}, second)
}

func TestMembersAreThoseWithAHeartbeat(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("landers")
	control := func(m *member) engine.Control {
		t.Helper()
		c, err := m.Control(t.Context(), []tenants.ID{tenant, "nobody"})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c["nobody"].Members); n > 0 {
			t.Errorf("%d members of a tenant without any", n)
		}
		return c[tenant]
	}
	equal(t, "both", engine.Control{Members: []string{one.name, two.name}}, control(one))
	b.pass(duration - 1)
	two.beat()
	b.pass(1)
	equal(t, "one has died", engine.Control{Members: []string{two.name}}, control(one))
	b.left(Stats{Heartbeats: 2})
	two.beat()
	b.left(Stats{Heartbeats: 1})
	two.leave()
	equal(t, "the other has left", engine.Control{}, control(one))
	b.left(Stats{})
}

func TestDiscoverPagesInOrder(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	for _, at := range []struct {
		tenant tenants.ID
		key    string
	}{{"beta", "b"}, {"acme", "z"}, {"beta", "a"}, {"acme", "ä"}, {"acme", "a"}, {"acme", "z"}, {"other", "a"}} {
		_, err := b.Publish(t.Context(), backend.Message{Tenant: at.tenant, Topic: changes, PartitionKey: at.key, ID: b.now.String()})
		if err != nil {
			t.Fatal(err)
		}
		b.pass(time.Second)
	}
	discover := func(after string, limit int, list ...tenants.ID) []engine.Stored {
		t.Helper()
		found, err := m.Discover(t.Context(), list, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	acme := []engine.Stored{
		{Tenant: "acme", Key: "a", Head: 5, Tail: 5},
		{Tenant: "acme", Key: "z", Head: 2, Tail: 6},
		{Tenant: "acme", Key: "ä", Head: 4, Tail: 4},
	}
	beta := []engine.Stored{{Tenant: "beta", Key: "a", Head: 3, Tail: 3}, {Tenant: "beta", Key: "b", Head: 1, Tail: 1}}
	equal(t, "of two tenants", append(acme[:3:3], beta...), discover("", 100, "beta", "acme"))
	equal(t, "first page of two", append(acme[:3:3], beta[0]), discover("ignored", 4, "beta", "acme"))
	equal(t, "first page of one", acme[:2], discover("", 2, "acme"))
	equal(t, "second page of one", acme[2:], discover("z", 2, "acme"))
	equal(t, "of none", nil, discover("", 100, "nobody"))
}

func TestFetchReadsRanges(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.publish("a", "1", "2", "3")
	b.publish("b", "4")
	type page struct {
		ids       []string
		exhausted bool
	}
	for name, c := range map[string]struct {
		r    engine.Range
		want page
	}{
		"all":          {engine.Range{Key: "a", Through: 9, Limit: 9}, page{[]string{"1", "2", "3"}, true}},
		"full page":    {engine.Range{Key: "a", Through: 9, Limit: 3}, page{[]string{"1", "2", "3"}, true}},
		"limited":      {engine.Range{Key: "a", Through: 9, Limit: 2}, page{[]string{"1", "2"}, false}},
		"after":        {engine.Range{Key: "a", After: 1, Through: 9, Limit: 1}, page{[]string{"2"}, false}},
		"through":      {engine.Range{Key: "a", After: 1, Through: 2, Limit: 9}, page{[]string{"2"}, true}},
		"behind all":   {engine.Range{Key: "a", After: 3, Through: 9, Limit: 9}, page{nil, true}},
		"only":         {engine.Range{Key: "a", Only: []uint64{3, 1, 4, 7}}, page{[]string{"1", "3"}, true}},
		"no partition": {engine.Range{Key: "c", Through: 9, Limit: 9}, page{nil, true}},
	} {
		f := m.fetch(c.r)[0]
		equal(t, name+": messages", c.want.ids, ids(f.Messages))
		equal(t, name+": exhausted", c.want.exhausted, f.Exhausted)
		equal(t, name+": key", c.r.Key, f.Key)
	}
	if n := len(m.fetch(engine.Range{Key: "a"}, engine.Range{Key: "c"})); n != 2 {
		t.Errorf("%d results for 2 ranges", n)
	}
}
