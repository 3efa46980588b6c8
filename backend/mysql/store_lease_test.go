package mysql

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

func TestLeaseHasOneOwner(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	g := f.grant(one, "k", 10)
	f.want("first grant", engine.Grant{Lease: g.Lease}, g)

	a := f.acquire(two, engine.Candidate{Key: "k"}, engine.Candidate{Key: "free"})
	f.want("granted to the second", []string{"free"}, keysOfGrants(a))
	if left := a.Denied["k"]; left <= 0 || left > one.cfg.LeaseDuration {
		t.Errorf("denied with %v left of %v", left, one.cfg.LeaseDuration)
	}

	f.release(one, engine.Release{Lease: g.Lease})
	again := f.grant(two, "k", 0)
	if again.Epoch <= g.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, g.Epoch)
	}
	f.want("after a release", engine.Grant{Lease: again.Lease}, again)
}

func TestValidLeasesOfOthersAreNeverWrittenTo(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	f.grant(one, "k", 1)

	// A lock that nobody waits for: a probe that wrote would block here.
	tx := f.begin()
	mustExec(t, tx, "UPDATE queue_partition_leases SET claimed_offset = 2 WHERE tenant = ?", string(tenantA))
	a := f.acquire(two, engine.Candidate{Key: "k"})
	if len(a.Grants) != 0 || a.Denied["k"] <= 0 {
		t.Errorf("acquired %+v", a)
	}
}

func TestOneNameTwoSubscribers(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "same"), f.store(groupA, "same")
	g := f.grant(one, "k", 0)
	if a := f.acquire(two, engine.Candidate{Key: "k"}); len(a.Grants) != 0 || a.Denied["k"] <= 0 {
		t.Errorf("the second of a name acquired %+v", a)
	}
	f.want("renewed by the second", []string{"k"}, f.renew(two, g.Lease))
	f.want("settled by the second", []engine.Settled{{Lost: true}}, f.settle(two, engine.Settlement{Lease: g.Lease, Run: []uint64{1}}))
	f.release(two, engine.Release{Lease: g.Lease, Forget: true})
	f.want("renewed by the first", []string(nil), f.renew(one, g.Lease))

	f.expire(one, "k")
	taken := f.grant(two, "k", 0)
	f.want("renewed by the first after the take-over", []string{"k"}, f.renew(one, g.Lease))
	f.want("renewed by the second after the take-over", []string(nil), f.renew(two, taken.Lease))
}

// A lease that is already ours under an older epoch is no grant: another part
// of this process may work under it.
func TestOwnValidLeaseIsNotGrantedTwice(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	g := f.grant(s, "k", 0)
	if a := f.acquire(s, engine.Candidate{Key: "k"}); len(a.Grants) != 0 || a.Denied["k"] <= 0 {
		t.Errorf("acquired again: %+v", a)
	}
	f.want("lost", []string(nil), f.renew(s, g.Lease))
}

func TestClaimsOfVanishedOwnersAreSuspect(t *testing.T) {
	f := newFixture(t)
	one, two, three := f.store(groupA, "one"), f.store(groupA, "two"), f.store(groupA, "three")
	g := f.grant(one, "k", 7)
	f.want("suspect of a fresh partition", uint64(0), g.Suspect)

	claim := func(s *store, g engine.Grant, offset uint64) {
		t.Helper()
		if err := s.Claim(t.Context(), tenantA, []engine.Claim{{Lease: g.Lease, Offset: offset}}); err != nil {
			t.Fatal(err)
		}
	}
	claim(one, g, 20)
	claim(one, g, 15) // the mark never falls
	f.expire(one, "k")
	g = f.grant(two, "k", 12)
	f.want("suspect after a take-over", uint64(20), g.Suspect)

	f.expire(two, "k")
	g = f.grant(three, "k", 3)
	f.want("suspect after a second one", uint64(20), g.Suspect)

	f.release(three, engine.Release{Lease: g.Lease})
	g = f.grant(one, "k", 100)
	f.want("suspect that was not resolved before the release", uint64(20), g.Suspect)
	f.release(one, engine.Release{Lease: g.Lease})
	g = f.grant(two, "k", 0)
	f.want("suspect after a release with a claim of 100", uint64(20), g.Suspect)
}

func TestSuspectsEndAtTheWatermark(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	run := f.publish("k", 4)
	g := f.grant(one, "k", run[2])
	f.settle(one, engine.Settlement{Lease: g.Lease, Run: run[:3]})
	f.expire(one, "k")
	g = f.grant(two, "k", 0)
	f.want("grant", engine.Grant{Lease: g.Lease, Watermark: run[2], Stored: true}, g)
}

// A process may freeze in the middle of a settlement, with its leases locked.
func TestFrozenOwnerKeepsItsPartitionOnly(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	keys := partitionKeys(20)
	var candidates []engine.Candidate
	for _, key := range keys {
		candidates = append(candidates, engine.Candidate{Key: key, Claim: 3})
	}
	f.acquire(one, candidates[:15]...)
	f.expire(one, keys[:15]...)
	tx := f.begin()
	mustExec(t, tx, "UPDATE queue_partition_leases SET claimed_offset = 7"+ofGroup+" AND partition_key = ?", string(tenantA), groupA, topicA, keys[4])

	a := f.acquire(two, candidates...)
	f.want("granted", slices.Delete(slices.Clone(keys), 4, 5), keysOfGrants(a))
	f.want("denied", map[string]time.Duration{keys[4]: blockedFor}, a.Denied)
	commit(t, tx)
	f.want("suspect, once it is free", uint64(7), f.grant(two, keys[4], 0).Suspect)
}

func TestEpochNeverRepeatsAfterTheRowWasDeleted(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	seen := make(map[uint64]bool)
	for range 50 {
		g := f.grant(s, "k", 0)
		if seen[g.Epoch] {
			t.Fatalf("epoch %d was used before", g.Epoch)
		}
		seen[g.Epoch] = true
		f.release(s, engine.Release{Lease: g.Lease, Forget: true})
		f.wantRows(map[string]int{})
	}
}

func TestExpiredLeaseIsTakenAndRenewReportsTheLoss(t *testing.T) {
	f := newFixture(t)
	one := f.store(groupA, "one", shortLease(50*time.Millisecond))
	two := f.store(groupA, "two")
	g, kept := f.grant(one, "k", 5), f.grant(one, "kept", 0)

	var a engine.Acquired
	eventually(t, "the lease runs out by the database's clock", func() bool {
		f.renew(one, kept.Lease)
		a = f.acquire(two, engine.Candidate{Key: "k"}, engine.Candidate{Key: "kept"})
		return len(a.Grants) > 0
	})
	f.want("taken over", []string{"k"}, keysOfGrants(a))
	f.want("suspect", uint64(5), a.Grants[0].Suspect)
	f.want("lost", []string{"k"}, f.renew(one, g.Lease, kept.Lease))
	f.want("lost by the new owner", []string(nil), f.renew(two, a.Grants[0].Lease))
}

func TestRenewProlongs(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one", shortLease(time.Hour))
	g := f.grant(s, "k", 0)
	mustExec(t, f.db, "UPDATE queue_partition_leases SET lease_expires_at = "+nowMillis+" + 1000 WHERE tenant = ?", string(tenantA))
	f.want("lost", []string(nil), f.renew(s, g.Lease))
	left := queryInt(t, f.db, "SELECT lease_expires_at - "+nowMillis+" FROM queue_partition_leases WHERE tenant = ?", string(tenantA))
	if d := fromMillis(int64(left)); d < 59*time.Minute || d > time.Hour {
		t.Errorf("renewed for %v, want an hour", d)
	}
}

// An owner whose lease was taken over, whatever it still tries, changes no row.
func TestStaleOwnerCannotTouchAnything(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	run := f.publish("k", 5)
	stale := f.grant(one, "k", run[4])
	f.expire(one, "k")
	current := f.grant(two, "k", run[1])
	f.settle(two, engine.Settlement{Lease: current.Lease, Run: run[:1], States: []engine.State{{Offset: run[1], Attempts: 1, Deliveries: 1}}})

	for name, try := range map[string]func() any{
		"settle a run": func() any {
			return f.settle(one, engine.Settlement{Lease: stale.Lease, Run: run})[0]
		},
		"drain": func() any {
			return f.settle(one, engine.Settlement{Lease: stale.Lease, Run: run, Drained: true, HasStates: true})[0]
		},
		"write a state": func() any {
			return f.settle(one, engine.Settlement{Lease: stale.Lease, States: []engine.State{{Offset: run[1], Settled: true}}})[0]
		},
		"dead-letter": func() any {
			m := f.fetch(one, engine.Range{Key: "k", Only: run[1:2]})[0].Messages[0].Message
			return f.settle(one, engine.Settlement{
				Lease: stale.Lease, States: []engine.State{{Offset: run[1], Settled: true}}, DeadLetters: []engine.DeadLetter{{Message: m, Attempts: 9}},
			})[0]
		},
		"claim": func() any {
			if err := one.Claim(t.Context(), tenantA, []engine.Claim{{Lease: stale.Lease, Offset: 1 << 40}}); err != nil {
				t.Fatal(err)
			}
			return engine.Settled{Lost: true}
		},
		"release": func() any {
			f.release(one, engine.Release{Lease: stale.Lease})
			return engine.Settled{Lost: true}
		},
		"forget": func() any {
			f.release(one, engine.Release{Lease: stale.Lease, Forget: true})
			return engine.Settled{Lost: true}
		},
		"renew": func() any {
			if lost := f.renew(one, stale.Lease); !slices.Equal(lost, []string{"k"}) {
				t.Errorf("renew lost %q", lost)
			}
			return engine.Settled{Lost: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := dump(t, f.db)
			if d := cmp.Diff(any(engine.Settled{Lost: true}), try()); d != "" {
				t.Errorf("result (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, dump(t, f.db)); d != "" {
				t.Errorf("a stale owner changed rows (-before +after):\n%s", d)
			}
		})
	}
}

// The rest of a batch goes on when one partition of it is lost.
func TestLostPartitionDoesNotHoldUpTheBatch(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	runs := map[string][]uint64{"a": f.publish("a", 2), "b": f.publish("b", 2), "c": f.publish("c", 2)}
	var settlements []engine.Settlement
	for _, key := range []string{"c", "b", "a"} {
		settlements = append(settlements, engine.Settlement{Lease: f.grant(one, key, 0).Lease, Run: runs[key], Drained: true})
	}
	f.expire(one, "b")
	f.grant(two, "b", 0)
	f.want("results in the order given", []engine.Settled{{Drained: true}, {Lost: true}, {Drained: true}}, f.settle(one, settlements...))
	f.want("left", map[string]int{"queue_messages": 2, "queue_partition_leases": 1}, f.rows())
}

func TestStatesAreReloadedWithTheLease(t *testing.T) {
	f := newFixture(t)
	one, two := f.store(groupA, "one"), f.store(groupA, "two")
	run := f.publish("k", 6)
	other := f.publish("other", 1)
	g, o := f.grant(one, "k", run[5]), f.grant(one, "other", 0)
	states := []engine.State{
		{Offset: run[2], Attempts: 2, Deliveries: 3, Delay: time.Hour, Error: "it's \\ \"broken\" 💥"},
		{Offset: run[3], Settled: true},
		{Offset: run[4], Deliveries: 1, Delay: time.Minute, Barrier: true},
		{Offset: run[5], Attempts: 1, Deliveries: 1},
	}
	f.settle(one,
		engine.Settlement{Lease: g.Lease, Run: run[:2], States: states},
		engine.Settlement{Lease: o.Lease, States: []engine.State{{Offset: other[0], Attempts: 1, Deliveries: 1}}})
	states[3].Attempts, states[3].Error = 2, "again"
	f.settle(one, engine.Settlement{Lease: g.Lease, Watermark: run[1], Stored: true, HasStates: true, States: states[3:]})
	f.release(one, engine.Release{Lease: g.Lease}, engine.Release{Lease: o.Lease})

	a := f.acquire(two, engine.Candidate{Key: "other"}, engine.Candidate{Key: "k"})
	slices.SortFunc(a.Grants, func(a, b engine.Grant) int { return len(a.Key) - len(b.Key) })
	near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < 30*time.Second })
	if d := cmp.Diff(states, a.Grants[0].States, near); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
	want := []engine.State{{Offset: other[0], Attempts: 1, Deliveries: 1}}
	if d := cmp.Diff(want, a.Grants[1].States, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("states of the other partition (-want +got):\n%s", d)
	}
	if d := a.Grants[0].States[0].Delay; d > time.Hour {
		t.Errorf("the delay grew to %v", d)
	}
}

// States come in pages; no page boundary may lose or repeat one, whatever the
// keys.
func TestStatesOfManyPartitionsComeInPages(t *testing.T) {
	f := newFixture(t)
	one := f.store(groupA, "one")
	keys := append([]string{"\x01", "a", "a\x1f", "a!", "é", "e\u0301", "💥"}, partitionKeys(4)...)
	const each = maxRead/8 + 1
	want := make(map[string]int)
	for i, key := range keys {
		g := f.grant(one, key, 0)
		var states []engine.State
		for n := range each {
			states = append(states, engine.State{Offset: uint64(1_000*i + n + 1), Settled: n%2 == 0})
		}
		for chunk := range slices.Chunk(states, engine.MaxRun) {
			f.settle(one, engine.Settlement{Lease: g.Lease, States: chunk})
		}
		f.release(one, engine.Release{Lease: g.Lease})
		want[key] = each
	}
	var candidates []engine.Candidate
	for _, key := range keys {
		candidates = append(candidates, engine.Candidate{Key: key})
	}
	got := make(map[string]int)
	for _, g := range f.acquire(one, candidates...).Grants {
		got[g.Key] = len(g.States)
		if !slices.IsSortedFunc(g.States, func(a, b engine.State) int { return int(a.Offset) - int(b.Offset) }) {
			t.Errorf("states of %q are not in order", g.Key)
		}
	}
	f.want("states by partition", want, got)
}

func TestDroppedGroupRegistersAgainWithItsNextLease(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	mustExec(t, f.db, "DELETE FROM queue_offsets WHERE tenant = ?", string(tenantA))
	f.want("grant", uint64(0), f.grant(s, "k", 0).Watermark)
	f.want("registrations", 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE tenant = ? AND consumer_group = ?", string(tenantA), groupA))
}
