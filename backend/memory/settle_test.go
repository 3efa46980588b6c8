package memory

import (
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

func TestWatermarkRemovesWhatItPasses(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b", "c", "d")
	lease := m.take("key", o[3]).Lease
	r := m.settle(engine.Settlement{Lease: lease, States: []engine.State{{Offset: o[0], Attempts: 1}, {Offset: o[2], Settled: true}}})
	equal(t, "without a run", engine.Settled{}, r)
	b.left(Stats{Messages: 4, States: 2, Leases: 1, Heartbeats: 1})

	r = m.settle(engine.Settlement{Lease: lease, Run: o[:2], HasStates: true})
	equal(t, "with a run", engine.Settled{Watermark: o[1], Stored: true}, r)
	b.left(Stats{Messages: 2, States: 1, Watermarks: 1, Leases: 1, Heartbeats: 1})
	equal(t, "stored", []string{"c", "d"}, ids(m.read("key")))

	// The same once more, as after an answer that was lost.
	r = m.settle(engine.Settlement{Lease: lease, Run: o[:2], HasStates: true})
	equal(t, "repeated", engine.Settled{Watermark: o[1], Stored: true}, r)
}

func TestWatermarkStopsBeforeUnseenMessages(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b", "c", "d", "e", "f")
	lease := m.take("key", o[5]).Lease
	r := m.settle(engine.Settlement{Lease: lease, Run: []uint64{o[0], o[2], o[4]}})
	equal(t, "settlement", engine.Settled{Watermark: o[0], Stored: true, Late: []uint64{o[1], o[3]}}, r)
	equal(t, "stored", []string{"b", "c", "d", "e", "f"}, ids(m.read("key")))
	m.release(lease, false)
	equal(t, "states", []engine.State{{Offset: o[2], Settled: true}, {Offset: o[4], Settled: true}}, m.take("key", 0).States)
}

// What an operator deleted counts as settled.
func TestRunPassesDeletedMessages(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b", "c")
	b.tables.delete(change("key", "b"))
	r := m.settle(engine.Settlement{Lease: m.take("key", o[2]).Lease, Run: o})
	equal(t, "settlement", engine.Settled{Watermark: o[2], Stored: true}, r)
}

func TestStoredWatermarkDecides(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.join("watchers") // keeps the messages
	o := b.publish("key", "a", "b", "c")
	lease := m.take("key", o[2]).Lease
	m.settle(engine.Settlement{Lease: lease, Run: o[:1]})
	// Somebody took the row away: what it had passed is unseen again.
	p := b.tables.topic(tenant, changes).find("key")
	p.progress("landers").stored = false
	r := m.settle(engine.Settlement{Lease: lease, Watermark: o[0], Stored: true, Run: o[1:]})
	equal(t, "settlement", engine.Settled{Late: o[:1]}, r)
}

func TestDrainedPartitionLeavesNothing(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	o := b.publish("key", "a", "b", "c")
	lease := m.take("key", o[2]).Lease
	m.settle(engine.Settlement{Lease: lease, Run: o[:1], States: []engine.State{{Offset: o[1], Attempts: 1}}})
	r := m.settle(engine.Settlement{Lease: lease, Watermark: o[0], Stored: true, Run: o[1:], HasStates: true, Drained: true})
	equal(t, "settlement", engine.Settled{Drained: true}, r)
	m.leave()
	b.left(Stats{})

	if err := b.DropGroup(t.Context(), tenant, changes, "landers"); err != nil {
		t.Fatal(err)
	}
	if n := len(b.tables.topics); n != 0 {
		t.Errorf("%d topics kept", n)
	}
}

func TestDrainedPartitionKeepsWhatCameMeanwhile(t *testing.T) {
	for _, start := range []backend.StartPosition{backend.Earliest, backend.Latest} {
		b := newBench(t)
		b.publish("other", "x")
		m := b.join("landers", start)
		o := b.publish("key", "a", "b", "c")
		lease := m.take("key", o[2]).Lease
		r := m.settle(engine.Settlement{Lease: lease, Run: []uint64{o[0], o[1]}, Drained: true})
		if !r.Drained {
			t.Errorf("%v: settlement %+v, want it drained", start, r)
		}
		grant := m.take("key", 0)
		if grant.Watermark >= o[2] || len(grant.States) > 0 {
			t.Errorf("%v: grant %+v has passed offset %d", start, grant, o[2])
		}
		equal(t, "stored", []string{"c"}, ids(m.read("key")))
	}
}

func TestMessagesWaitForEveryGroup(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	o := b.publish("key", "a", "b")
	first, second := one.take("key", o[1]).Lease, two.take("key", o[1]).Lease

	r := one.settle(engine.Settlement{Lease: first, Run: o, Drained: true})
	equal(t, "first group", engine.Settled{Watermark: o[1], Stored: true, Drained: true}, r)
	b.left(Stats{Messages: 2, Watermarks: 1, Leases: 1, Heartbeats: 2})
	again := one.take("key", 0)
	equal(t, "watermark", o[1], again.Watermark)
	one.release(again.Lease, true)

	r = two.settle(engine.Settlement{Lease: second, Run: o[:1]})
	equal(t, "second group", engine.Settled{Watermark: o[0], Stored: true}, r)
	equal(t, "stored", []string{"b"}, ids(two.read("key")))

	r = two.settle(engine.Settlement{Lease: second, Watermark: o[0], Stored: true, Run: o[1:], Drained: true})
	equal(t, "second group at the end", engine.Settled{Drained: true}, r)
	b.left(Stats{Heartbeats: 2})
}

// What one group has passed and another never will, since it was dropped, must
// not come back to the first when its watermark goes.
func TestDrainingRemovesWhatADroppedGroupLeft(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.join("watchers")
	o := b.publish("key", "a", "b")
	lease := m.take("key", o[1]).Lease
	m.settle(engine.Settlement{Lease: lease, Run: o[:1]})
	equal(t, "stored", []string{"a", "b"}, ids(m.read("key")))
	if err := b.DropGroup(t.Context(), tenant, changes, "watchers"); err != nil {
		t.Fatal(err)
	}
	m.settle(engine.Settlement{Lease: lease, Watermark: o[0], Stored: true, Run: o[1:], Drained: true})
	b.left(Stats{Heartbeats: 1})
}

// A group that holds a lease on the partition finds out by itself that there is
// nothing left.
func TestDrainingSparesTheOwnersOfOtherGroups(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	o := b.publish("key", "a")
	first, second := one.take("key", o[0]).Lease, two.take("key", o[0]).Lease
	one.settle(engine.Settlement{Lease: first, Run: o})
	r := two.settle(engine.Settlement{Lease: second, Run: o, Drained: true})
	equal(t, "second group", engine.Settled{Drained: true}, r)
	b.left(Stats{Watermarks: 1, Leases: 1, Heartbeats: 2})
	r = one.settle(engine.Settlement{Lease: first, Watermark: o[0], Stored: true, Drained: true})
	equal(t, "first group", engine.Settled{Drained: true}, r)
	b.left(Stats{Heartbeats: 2})
}

// Messages of a topic without groups are for the first that joins, whatever a
// group that was dropped has collected before.
func TestMessagesWaitForTheFirstGroup(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	if err := b.DropGroup(t.Context(), tenant, changes, "landers"); err != nil {
		t.Fatal(err)
	}
	b.publish("key", "a")
	equal(t, "stale", nil, m.collect(engine.Passed{Key: "key"}))
	equal(t, "stored", []string{"a"}, ids(b.join("watchers").read("key")))
}

// A group that was dropped beats on until its process notices.
func TestNothingWaitsForADroppedGroup(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	if err := b.DropGroup(t.Context(), tenant, changes, "watchers"); err != nil {
		t.Fatal(err)
	}
	two.beat()
	for _, drained := range []bool{false, true} {
		o := b.publish("key", "a")
		one.settle(engine.Settlement{Lease: one.take("key", o[0]).Lease, Run: o, Drained: drained})
		if n := b.Stats().Messages; n != 0 {
			t.Errorf("drained %v: %d messages left", drained, n)
		}
		b.pass(duration)
	}
}

func TestUnseenMessageKeepsTheLease(t *testing.T) {
	b := newBench(t)
	one := b.join("landers")
	b.join("watchers")
	o := b.publish("key", "a", "b", "c")
	lease := one.take("key", o[2]).Lease
	r := one.settle(engine.Settlement{Lease: lease, Run: []uint64{o[0], o[2]}, Drained: true})
	equal(t, "settlement", engine.Settled{Watermark: o[0], Stored: true, Late: o[1:2]}, r)
	equal(t, "lost", nil, one.renew(lease))
}

func TestGroupsStartWhereTheyAreTold(t *testing.T) {
	b := newBench(t)
	before := b.publish("key", "a", "b")
	early, late := b.join("early", backend.Earliest), b.join("late", backend.Latest)
	b.publish("key", "c")
	again := b.join("late", backend.Earliest) // known already: stays where it is

	equal(t, "earliest", uint64(0), early.take("key", 0).Watermark)
	equal(t, "latest", before[1], late.take("key", 0).Watermark)
	b.pass(duration)
	equal(t, "latest, the second time", before[1], again.take("key", 0).Watermark)
}

func TestSettlementsOfOneCallStandAlone(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	one, two := b.publish("one", "a"), b.publish("two", "b")
	first := m.take("one", 0).Lease
	lost := first
	lost.Key = "two"
	results, err := m.Settle(t.Context(), tenant, []engine.Settlement{
		{Lease: lost, Run: two}, {Lease: first, Run: one},
	})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "results", []engine.Settled{{Lost: true}, {Watermark: one[0], Stored: true}}, results)
	b.left(Stats{Messages: 1, Watermarks: 1, Leases: 1, Heartbeats: 1})
}

func TestCollectRemovesWhatAllHavePassed(t *testing.T) {
	b := newBench(t)
	o := b.publish("key", "a", "b", "c")
	late := b.join("late", backend.Latest)
	m := b.join("landers")
	lease := m.take("key", o[2]).Lease
	m.settle(engine.Settlement{Lease: lease, Run: o[:2]})
	equal(t, "stored", []string{"c"}, ids(m.read("key")))

	for name, p := range map[string]engine.Passed{
		"value":  {Key: "key", Watermark: o[2], Stored: true},
		"stored": {Key: "key", Watermark: o[1], Stored: false},
		"gone":   {Key: "gone", Watermark: o[2], Stored: true},
	} {
		equal(t, "stale by its "+name, []string{p.Key}, m.collect(p))
	}
	equal(t, "fresh", nil, m.collect(engine.Passed{Key: "key", Watermark: o[1], Stored: true}))
	equal(t, "stored", []string{"c"}, ids(m.read("key")))

	if err := b.DropGroup(t.Context(), tenant, changes, "landers"); err != nil {
		t.Fatal(err)
	}
	equal(t, "nothing waits", nil, late.collect(engine.Passed{Key: "key", Watermark: o[2]}))
	b.left(Stats{Heartbeats: 1})
}

func TestCollectForgetsGroupsWithoutALease(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	o := b.publish("key", "a", "b")
	for _, m := range []*member{one, two} {
		m.settle(engine.Settlement{Lease: m.take("key", o[1]).Lease, Run: o[:1]})
	}
	b.tables.delete(change("key", "b")) // by an operator
	passed := engine.Passed{Key: "key", Watermark: o[0], Stored: true}
	equal(t, "both have leases", nil, one.collect(passed))
	b.left(Stats{Watermarks: 2, Leases: 2, Heartbeats: 2})
	b.pass(4 * duration)
	one.purge()
	b.left(Stats{Watermarks: 1, Leases: 1, Heartbeats: 1}) // each group purges its own
	two.purge()
	b.left(Stats{})
}

func TestCollectLeavesNothing(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	b.join("watchers")
	o := b.publish("key", "a")
	m.settle(engine.Settlement{Lease: m.take("key", o[0]).Lease, Run: o, Drained: true})
	b.left(Stats{Messages: 1, Watermarks: 1, Heartbeats: 2})
	if err := b.DropGroup(t.Context(), tenant, changes, "watchers"); err != nil {
		t.Fatal(err)
	}
	equal(t, "stale", nil, m.collect(engine.Passed{Key: "key", Watermark: o[0], Stored: true}))
	b.left(Stats{Heartbeats: 1})
}

// Tenants and topics come and go: what is kept of them must not add up.
func TestTopicsWithoutRowsAreForgotten(t *testing.T) {
	b := newBench(t)
	one, two := b.join("landers"), b.join("watchers")
	for _, group := range []string{"landers", "watchers"} {
		if err := b.DropGroup(t.Context(), tenant, changes, group); err != nil {
			t.Fatal(err)
		}
	}
	one.beat()
	two.beat()
	m := b.undertaker()
	equal(t, "topics", 2, len(b.tables.topics))
	m.leave()
	if err := b.DropGroup(t.Context(), tenant, deadTopic, "undertakers"); err != nil {
		t.Fatal(err)
	}
	one.leave()
	equal(t, "topics while one lives", 1, len(b.tables.topics))
	b.pass(duration)
	two.purge()
	equal(t, "topics once it has died", 0, len(b.tables.topics))
	one.beat()
	one.leave()
	equal(t, "topics once it has left", 0, len(b.tables.topics))

	one = b.join("landers")
	b.publish("key", "a")
	one.kill("key")
	equal(t, "topics with a dead letter", 2, len(b.tables.topics))
	if err := b.Redrive(t.Context(), tenant, deadTopic, "key", "a"); err != nil {
		t.Fatal(err)
	}
	equal(t, "topics once it is gone", 1, len(b.tables.topics))
}

func TestPurgeForgetsTheDead(t *testing.T) {
	b := newBench(t)
	m, dead := b.join("landers"), b.join("landers")
	o := b.publish("key", "a")
	b.publish("kept", "b")
	grant := dead.take("key", o[0])
	dead.take("kept", 9)
	dead.settle(engine.Settlement{Lease: grant.Lease, Run: o, States: []engine.State{{Offset: 99}}})
	b.pass(3 * duration)
	m.purge() // as long as its owner may come back
	b.left(Stats{Messages: 1, States: 1, Watermarks: 1, Leases: 2})
	b.pass(time.Millisecond)
	m.purge()
	b.left(Stats{Messages: 1, Leases: 1}) // that of the partition with a message tells of suspects
	equal(t, "suspect", uint64(9), m.take("kept", 0).Suspect)
}

func TestGroupsAwayForTooLongAreDropped(t *testing.T) {
	b := newBench(t)
	m, away := b.join("landers"), b.join("watchers")
	o := b.publish("key", "a")
	grant := m.take("key", o[0])
	m.settle(engine.Settlement{Lease: grant.Lease, Run: o, Drained: true})
	away.take("key", o[0])

	b.pass(DefaultGroupRetention)
	away.beat()
	b.pass(DefaultGroupRetention)
	m.purge()
	equal(t, "groups after the retention", 2, b.Stats().Groups)
	b.pass(1)
	m.purge()
	equal(t, "groups after more", 1, b.Stats().Groups)
	equal(t, "stale", nil, m.collect(engine.Passed{Key: "key", Watermark: o[0], Stored: true}))
	b.left(Stats{})
}

func TestPurgeIsBounded(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	for range maxPurge + 1 {
		key := b.now.String()
		m.settle(engine.Settlement{Lease: m.take(key, 0).Lease, Run: b.publish(key, "a")})
		b.pass(time.Millisecond)
	}
	m.leave()
	b.pass(3 * duration)
	m.purge()
	b.left(Stats{Watermarks: 1, Leases: 1})
	m.purge()
	b.left(Stats{})
}
