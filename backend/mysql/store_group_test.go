package mysql

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMessageWaitsForEveryRegisteredGroup(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	run := f.publish("k", 4)
	ga, gb := f.grant(a, "k", 0), f.grant(b, "k", 0)

	f.want("first group drained", []engine.Settled{{Drained: true, Watermark: run[3], Stored: true}},
		f.settle(a, engine.Settlement{Lease: ga.Lease, Run: run, Drained: true}))
	f.wantRows(map[string]int{"queue_messages": 4, "queue_offsets": 1, "queue_partition_leases": 1})
	f.want("left for the second", run, f.offsets(b, "k", 0))

	f.want("second group in part", []engine.Settled{{Watermark: run[1], Stored: true}},
		f.settle(b, engine.Settlement{Lease: gb.Lease, Run: run[:2]}))
	f.wantRows(map[string]int{"queue_messages": 2, "queue_offsets": 2, "queue_partition_leases": 1})

	f.want("second group drained", []engine.Settled{{Drained: true}},
		f.settle(b, engine.Settlement{Lease: gb.Lease, Watermark: run[1], Stored: true, Run: run[2:], Drained: true}))
	f.wantRows(map[string]int{})
}

// A group that still leases the partition bases decisions on its watermark.
func TestWatermarkStaysWhileItsGroupHasTheLease(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	run := f.publish("k", 2)
	ga, gb := f.grant(a, "k", 0), f.grant(b, "k", 0)
	f.settle(a, engine.Settlement{Lease: ga.Lease, Run: run})
	f.want("second group drained", []engine.Settled{{Drained: true}}, f.settle(b, engine.Settlement{Lease: gb.Lease, Run: run, Drained: true}))
	acked, ok := f.mark(groupA, "k")
	f.want("watermark of the first", []any{run[1], true}, []any{acked, ok})

	f.want("first drained at last", []engine.Settled{{Drained: true}},
		f.settle(a, engine.Settlement{Lease: ga.Lease, Watermark: run[1], Stored: true, Drained: true}))
	f.wantRows(map[string]int{})
}

// A watermark may only go once nothing at or below it is stored: the group
// would get it again.
func TestWatermarkStaysWhileMessagesBelowItAreStored(t *testing.T) {
	for name, n := range map[string]int{"few messages": 2, "more than a list takes": listTerms + 1} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			a := f.store(groupA, "a")
			f.store(groupB, "b")
			run := f.publish("k", 2+n)
			g := f.grant(a, "k", 0)
			f.settle(a, engine.Settlement{Lease: g.Lease, Run: run[:2]}) // stored for the second group
			if err := f.q.DropGroup(t.Context(), tenantA, topicA, groupB); err != nil {
				t.Fatal(err)
			}
			got := f.settle(a, engine.Settlement{Lease: g.Lease, Watermark: run[1], Stored: true, Run: run[2:], Drained: true})[0]
			f.want("drained", engine.Settled{Drained: true, Watermark: got.Watermark, Stored: true}, got)
			f.want("left", run[:2], f.offsets(a, "k", 0))
			g = f.grant(a, "k", 0)
			f.want("watermark", got.Watermark, g.Watermark)
			if g.Watermark < run[1] {
				t.Errorf("the watermark fell to %d, messages up to %d are stored", g.Watermark, run[1])
			}

			stale, err := a.Collect(t.Context(), tenantA, []engine.Passed{{Key: "k", Watermark: g.Watermark, Stored: true}})
			f.want("collect", []any{[]string(nil), error(nil)}, []any{stale, err})
			f.want("drained", []engine.Settled{{Drained: true}},
				f.settle(a, engine.Settlement{Lease: g.Lease, Watermark: g.Watermark, Stored: true, Drained: true}))
			f.wantRows(map[string]int{})
		})
	}
}

func TestGroupThatJoinsLateHoldsMessagesBack(t *testing.T) {
	f := newFixture(t)
	a := f.store(groupA, "a")
	run := f.publish("k", 4)
	g := f.grant(a, "k", 0)
	f.settle(a, engine.Settlement{Lease: g.Lease, Run: run[:1]})
	b := f.store(groupB, "b")
	f.settle(a, engine.Settlement{Lease: g.Lease, Watermark: run[0], Stored: true, Run: run[1:3]})
	f.want("left for the one that joined", run[1:], f.offsets(b, "k", f.grant(b, "k", 0).Watermark))
}

func TestStartPositions(t *testing.T) {
	f := newFixture(t)
	before := f.publish("k", 2)
	last := f.publish("other", 1)
	early := f.store(groupA, "early")
	late := f.store(groupB, "late", latest)
	after := f.publish("k", 1)
	for _, c := range []struct {
		s    *store
		mark uint64
		want []uint64
	}{{early, 0, slices.Concat(before, after)}, {late, last[0], after}} {
		g := f.grant(c.s, "k", 0)
		f.want("grant", engine.Grant{Lease: g.Lease, Watermark: c.mark}, g)
		f.want("messages", c.want, f.offsets(c.s, "k", g.Watermark))
	}

	// Neither a repeat nor another start position moves a known group.
	f.store(groupA, "again", latest)
	again := f.store(groupB, "again")
	f.want("position of a known group", last[0], f.grant(again, "new", 0).Watermark)

	// What lies before the start of the late group need not wait for it.
	g := f.grant(early, "other", 0)
	f.want("drained", []engine.Settled{{Drained: true}}, f.settle(early, engine.Settlement{Lease: g.Lease, Run: last, Drained: true}))
}

func TestRegisterManyTenants(t *testing.T) {
	f := newFixture(t)
	s := f.unregistered(topicA, groupA, "one")
	list := []tenants.ID{"\x01", "it's", `back\slash`, `"quoted"`, "a;b", "A", "a"}
	for i := range 50 {
		list = append(list, tenants.ID(partitionKeys(50)[i]))
	}
	for range 2 {
		if err := s.Register(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		f.want("registrations", len(list), queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE consumer_group = ?", groupA))
	}
	mustExec(t, f.db, "UPDATE queue_offsets SET updated_at = 1")
	if err := s.Register(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	f.want("registrations that are still old", 0, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE updated_at = 1"))
}

func TestControlShowsLiveMembersAndPause(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	other := f.store(groupB, "other")
	list := []tenants.ID{tenantA, "nobody"}
	control := func() map[tenants.ID]engine.Control {
		t.Helper()
		c, err := one.Control(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		for id := range c {
			slices.Sort(c[id].Members)
		}
		return c
	}
	beat := func(s *store) {
		t.Helper()
		if err := s.Beat(t.Context(), tenantA); err != nil {
			t.Fatal(err)
		}
	}
	f.want("without heartbeats", map[tenants.ID]engine.Control{tenantA: {}}, control())
	beat(one)
	beat(two)
	beat(other)
	f.want("members", map[tenants.ID]engine.Control{tenantA: {Members: []string{"one", "two"}}}, control())

	if err := f.q.Pause(t.Context(), tenantA, topicA, groupA); err != nil {
		t.Fatal(err)
	}
	f.want("paused", map[tenants.ID]engine.Control{tenantA: {Members: []string{"one", "two"}, Paused: true}}, control())
	f.want("a lease says so, too", true, f.acquire(one, engine.Candidate{Key: "k"}).Paused)
	if err := one.Register(t.Context(), list[:1]); err != nil {
		t.Fatal(err)
	}
	if err := f.q.Resume(t.Context(), tenantA, topicA, groupA); err != nil {
		t.Fatal(err)
	}
	f.want("resumed", map[tenants.ID]engine.Control{tenantA: {Members: []string{"one", "two"}}}, control())

	// One that no longer beats is forgotten by the others.
	mustExec(t, f.db, "UPDATE queue_subscriber_heartbeats SET expires_at = 1 WHERE subscriber_name = 'two'")
	f.want("members after one has died", map[tenants.ID]engine.Control{tenantA: {Members: []string{"one"}}}, control())
	beat(one)
	f.want("heartbeats", 2, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_subscriber_heartbeats"))
	if err := one.Leave(t.Context(), tenantA); err != nil {
		t.Fatal(err)
	}
	f.want("after it left", map[tenants.ID]engine.Control{tenantA: {}}, control())
	f.want("heartbeats of the other group", 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_subscriber_heartbeats"))
}

// A subscription that runs for weeks registers once: its heartbeats keep the
// registration from growing old.
func TestBeatKeepsTheRegistrationYoung(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	mustExec(t, f.db, "UPDATE queue_offsets SET offset_acked = 7, updated_at = "+nowMillis+" - ?", 2*touchAfter.Milliseconds())
	for _, step := range []func() error{
		func() error { return s.Beat(t.Context(), tenantA) },
		func() error { _, err := s.Control(t.Context(), []tenants.ID{tenantA}); return err },
		func() error { return s.Beat(t.Context(), tenantA) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	age := queryInt(t, f.db, "SELECT "+nowMillis+" - updated_at FROM queue_offsets WHERE offset_acked = 7")
	if d := fromMillis(int64(age)); d > time.Minute {
		t.Errorf("the registration is %v old", d)
	}
}

// Two groups settle the same partitions at the same time, and again and again
// meet each other's locks. Nothing fails, and when both are through nothing is
// left.
func TestConcurrentSettlementsOfTwoGroups(t *testing.T) { settleInTwoGroups(newFixture(t)) }

func settleInTwoGroups(f *fixture) {
	const rounds, batch = 15, 20
	keys := partitionKeys(8)
	runs := make(map[string][]uint64)
	for _, key := range keys {
		runs[key] = f.publish(key, rounds*batch)
	}
	var wait sync.WaitGroup
	for _, group := range []string{groupA, groupB} {
		s := f.store(group, "one")
		wait.Go(func() {
			marks := make(map[string]engine.Settlement)
			settlements := make([]engine.Settlement, len(keys))
			f.lease(s, settlements, keys)
			for i, key := range keys {
				marks[key] = settlements[i]
			}
			for round := 0; round < rounds; {
				for i, key := range keys {
					settlements[i] = marks[key]
					settlements[i].Run = runs[key][round*batch : (round+1)*batch]
					settlements[i].HasStates = true
					settlements[i].Drained = round == rounds-1
				}
				results, err := s.Settle(f.Context(), tenantA, settlements)
				if err != nil {
					f.Error(err)
					return
				}
				for i, r := range results {
					if r.Lost || len(r.Late) > 0 {
						f.Errorf("partition %s: %+v", keys[i], r)
						return
					}
				}
				if !slices.ContainsFunc(results, func(r engine.Settled) bool { return r.Stalled }) {
					round++
				}
				for i, key := range keys {
					m := marks[key]
					m.Watermark, m.Stored = results[i].Watermark, results[i].Stored
					marks[key] = m
				}
			}
		})
	}
	wait.Wait()
	if f.Failed() {
		return
	}
	// Whoever was last may have looked before the other had committed: what is
	// left then is for the collector.
	s := f.unregistered(topicA, groupA, "collector")
	var passed []engine.Passed
	for _, key := range keys {
		if acked, ok := f.mark(groupA, key); ok {
			passed = append(passed, engine.Passed{Key: key, Watermark: acked, Stored: true})
		}
	}
	stale, err := s.Collect(f.Context(), tenantA, passed)
	f.want("collect", []any{[]string(nil), error(nil)}, []any{stale, err})
	f.wantRows(map[string]int{})
}

func TestGroupAwayForLongerThanTheRetentionIsDropped(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	run := f.publish("k", 2)
	gb := f.grant(b, "k", 0)
	f.settle(b, engine.Settlement{Lease: gb.Lease, Run: run[:1], States: []engine.State{{Offset: run[1], Attempts: 1}}})
	purge := func() {
		t.Helper()
		if err := a.Purge(t.Context(), []tenants.ID{tenantA}); err != nil {
			t.Fatal(err)
		}
	}
	groups := func() int {
		t.Helper()
		return queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE partition_key = ''")
	}
	mustExec(t, f.db, "UPDATE queue_offsets SET updated_at = "+nowMillis+" - ? WHERE consumer_group = ?",
		(DefaultGroupRetention - time.Hour).Milliseconds(), groupB)
	purge()
	f.want("groups before the retention ends", 2, groups())
	mustExec(t, f.db, "UPDATE queue_offsets SET updated_at = updated_at - ?", (2 * time.Hour).Milliseconds())
	purge()
	f.want("groups after it", 1, groups())
	f.wantRows(map[string]int{"queue_messages": 2})
	if err := f.q.DropGroup(t.Context(), tenantA, topicA, groupB); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("drop it once more: %v", err)
	}
}
