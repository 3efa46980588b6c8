package mysql

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

func TestDrainedPartitionLeavesNoRow(t *testing.T) {
	for name, n := range map[string]int{"few messages": 3, "more than a list takes": listTerms + 1, "none": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.store(groupA, "one")
			run := f.publish("k", n+1)[:n] // the last one goes first
			mustExec(t, f.db, "DELETE FROM queue_messages WHERE id = ?", message(tenantA, topicA, "k", f.published).ID)
			g := f.grant(s, "k", 0)
			got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run, Drained: true})
			f.want("settled", []engine.Settled{{Drained: true}}, got)
			f.wantRows(map[string]int{})
		})
	}
}

func TestDrainedPartitionLeavesNoRowAfterPartialSettlements(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 6)
	g := f.grant(s, "k", 0)
	got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:2], States: []engine.State{{Offset: run[3], Settled: true}, {Offset: run[4], Attempts: 1}}})
	f.want("settled", []engine.Settled{{Watermark: run[1], Stored: true}}, got)
	f.wantRows(map[string]int{"queue_messages": 4, "queue_delivery_state": 2, "queue_offsets": 1, "queue_partition_leases": 1})

	got = f.settle(s, engine.Settlement{Lease: g.Lease, Watermark: run[1], Stored: true, Run: run[2:4], HasStates: true})
	f.want("settled", []engine.Settled{{Watermark: run[3], Stored: true}}, got)
	f.wantRows(map[string]int{"queue_messages": 2, "queue_delivery_state": 1, "queue_offsets": 1, "queue_partition_leases": 1})

	got = f.settle(s, engine.Settlement{Lease: g.Lease, Watermark: run[3], Stored: true, Run: run[4:], HasStates: true, Drained: true})
	f.want("settled", []engine.Settled{{Drained: true}}, got)
	f.wantRows(map[string]int{})
}

func TestManyPartitionsDrainInOneTransaction(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	keys := partitionKeys(2*listTerms + 3)
	var settlements []engine.Settlement
	for i, key := range keys {
		run := f.publish(key, 1+i%3)
		settlements = append(settlements, engine.Settlement{Run: run, Drained: true})
	}
	f.lease(s, settlements, keys)
	for i, r := range f.settle(s, settlements...) {
		f.want("settled "+keys[i], engine.Settled{Drained: true}, r)
	}
	f.wantRows(map[string]int{})
}

// lease acquires the partitions of some settlements.
func (f *fixture) lease(s *store, settlements []engine.Settlement, keys []string) {
	f.Helper()
	var candidates []engine.Candidate
	for _, key := range keys {
		candidates = append(candidates, engine.Candidate{Key: key})
	}
	leases := make(map[string]engine.Lease)
	for _, g := range f.acquire(s, candidates...).Grants {
		leases[g.Key] = g.Lease
	}
	for i := range settlements {
		settlements[i].Lease = leases[keys[i]]
	}
}

func TestDeepRunMovesTheWatermark(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", engine.MaxRun+1)
	f.publish("neighbour", 1)
	g := f.grant(s, "k", 0)
	got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:engine.MaxRun]})
	f.want("settled", []engine.Settled{{Watermark: run[engine.MaxRun-1], Stored: true}}, got)
	f.want("left", run[engine.MaxRun:], f.offsets(s, "k", 0))
	f.want("left of the neighbour", 1, len(f.offsets(s, "neighbour", 0)))
}

// What the database holds counts, not what the owner believes.
func TestSettleGoesByTheStoredWatermark(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 4)
	g := f.grant(s, "k", 0)
	f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:2]})

	got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:3]}) // believes it stands at 0
	f.want("settled again", []engine.Settled{{Watermark: run[2], Stored: true}}, got)

	mustExec(t, f.db, "DELETE FROM queue_offsets WHERE partition_key = 'k'")
	got = f.settle(s, engine.Settlement{Lease: g.Lease, Watermark: run[2], Stored: true})
	f.want("without the row it believes in", []engine.Settled{{}}, got)
	got = f.settle(s, engine.Settlement{Lease: g.Lease, Watermark: run[2], Stored: true, Run: run[3:]})
	f.want("and with a run", []engine.Settled{{Watermark: run[3], Stored: true}}, got)
}

func TestRepeatedSettlementIsNoOp(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 4)
	g := f.grant(s, "k", 0)
	once := engine.Settlement{Lease: g.Lease, Run: run[:2], States: []engine.State{{Offset: run[2], Settled: true}}}
	f.settle(s, once)
	before := dump(t, f.db)
	got := f.settle(s, once)
	f.want("settled", []engine.Settled{{Watermark: run[1], Stored: true}}, got)
	after := dump(t, f.db)
	delete(before, "queue_offsets") // updated_at
	delete(after, "queue_offsets")
	f.want("rows", before, after)
}

func TestLateMessageStopsTheWatermark(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	tx := f.begin()
	first := f.publish("k", 2)
	late := f.insert(tx, "k")
	rest := f.publish("k", 3)
	g := f.grant(s, "k", 0)
	run := f.offsets(s, "k", 0) // does not show the late one
	f.want("run", slices.Concat(first, rest), run)
	commit(t, tx)

	for _, drained := range []bool{false, true} {
		// More than a list takes is settled by the watermark also when drained.
		f.want("settled", []engine.Settled{{Watermark: first[1], Stored: true, Late: []uint64{late}}},
			f.settle(s, engine.Settlement{Lease: g.Lease, Run: run, States: []engine.State{{Offset: rest[2] + 100, Attempts: 1}}, Drained: drained}))
	}
	f.want("left", slices.Concat([]uint64{late}, rest), f.offsets(s, "k", 0))
	f.release(s, engine.Release{Lease: g.Lease})
	g = f.grant(s, "k", 0)
	var settled []uint64
	for _, st := range g.States {
		if st.Settled {
			settled = append(settled, st.Offset)
		}
	}
	f.want("written as settled ahead of the watermark", rest, settled)

	got := f.settle(s, engine.Settlement{Lease: g.Lease, Watermark: first[1], Stored: true, Run: slices.Concat([]uint64{late}, rest), HasStates: true, Drained: true})
	f.want("settled with the late one", []engine.Settled{{Drained: true}}, got)
	f.wantRows(map[string]int{})
}

func TestLateMessageOfADrainedPartitionIsANewOne(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	tx := f.begin()
	late := f.insert(tx, "k")
	run := f.publish("k", 2)
	g := f.grant(s, "k", 0)
	f.want("settled beside an open publisher", []engine.Settled{{Drained: true}}, f.settle(s, engine.Settlement{Lease: g.Lease, Run: run, Drained: true}))
	commit(t, tx)
	f.want("left", map[string]int{"queue_messages": 1}, f.rows())
	g = f.grant(s, "k", 0)
	f.want("grant", engine.Grant{Lease: g.Lease}, g)
	f.want("delivered", []uint64{late}, f.offsets(s, "k", g.Watermark))
}

func TestPublisherInsideTheRunStallsOnlyItsPartition(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	tx := f.begin()
	first := f.publish("k", 1)
	late := f.insert(tx, "k")
	second := f.publish("k", 2)
	other := f.publish("other", 2)
	g, o := f.grant(s, "k", 0), f.grant(s, "other", 0)
	run := slices.Concat(first, second)

	settle := func(k, o engine.Settlement) []engine.Settled { return f.settle(s, k, o) }
	got := settle(engine.Settlement{Lease: g.Lease, Run: run}, engine.Settlement{Lease: o.Lease, Run: other[:1]})
	f.want("settled", []engine.Settled{{Stalled: true}, {Watermark: other[0], Stored: true}}, got)

	f.release(s, engine.Release{Lease: g.Lease})
	g = f.grant(s, "k", 0)
	f.want("the run, kept as states", []engine.State{
		{Offset: run[0], Settled: true}, {Offset: run[1], Settled: true}, {Offset: run[2], Settled: true},
	}, g.States)

	commit(t, tx)
	got = settle(engine.Settlement{Lease: g.Lease, Run: run, HasStates: true}, engine.Settlement{Lease: o.Lease, Run: other[1:], Watermark: other[0], Stored: true})
	f.want("settled once it has committed", []engine.Settled{
		{Watermark: first[0], Stored: true, Late: []uint64{late}}, {Watermark: other[1], Stored: true},
	}, got)
}

// However many partitions have a publisher inside, the rest goes on, and the
// call ends.
func TestManyStalledPartitions(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	keys := partitionKeys(2 * maxStalls)
	tx := f.begin()
	settlements := make([]engine.Settlement, len(keys))
	for i, key := range keys {
		f.insert(tx, key)
		settlements[i].Run = f.publish(key, 1)
	}
	f.lease(s, settlements, keys)
	for i, r := range f.settle(s, settlements...) {
		f.want("settled "+keys[i], engine.Settled{Stalled: true}, r)
	}
	commit(t, tx)
	for i, r := range f.settle(s, settlements...) {
		if len(r.Late) != 1 {
			t.Errorf("settled %s: %+v", keys[i], r)
		}
	}
}

// What is loaded and settled meanwhile may be gone: another group's clean-up, or
// an operator.
func TestDeletedMessagesCountAsSettled(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("k", 5)
	g := f.grant(s, "k", 0)
	mustExec(t, f.db, "DELETE FROM queue_messages WHERE `offset` IN (?, ?)", run[1], run[3])
	got := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:4]})
	f.want("settled", []engine.Settled{{Watermark: run[3], Stored: true}}, got)
	f.want("left", run[4:], f.offsets(s, "k", 0))
}

// The protocol's pure part, held against a set of offsets.
func TestWatermarkNeverPassesWhatIsNotSettled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		watermark := rapid.Uint64Range(0, 5).Draw(t, "watermark")
		stored := rapid.SliceOfNDistinct(rapid.Uint64Range(watermark+1, watermark+30), 0, 20, rapid.ID[uint64]).Draw(t, "stored")
		run := rapid.SliceOfNDistinct(rapid.Uint64Range(watermark+1, watermark+30), 1, 20, rapid.ID[uint64]).Draw(t, "run")
		slices.Sort(stored)
		slices.Sort(run)
		// As the database answers: up to the end of the run, at most as many.
		var found []uint64
		for _, offset := range stored {
			if offset <= run[len(run)-1] && len(found) < len(run) {
				found = append(found, offset)
			}
		}

		mark, ahead, passed, late := advance(watermark, run, found)

		isSettled := func(offset uint64) bool { return slices.Contains(run, offset) }
		for _, offset := range stored {
			if offset <= mark && !isSettled(offset) {
				t.Errorf("the watermark %d passes %d", mark, offset)
			}
		}
		if mark < watermark || mark > run[len(run)-1] {
			t.Errorf("the watermark moved from %d to %d", watermark, mark)
		}
		for _, offset := range late {
			if isSettled(offset) || offset <= mark {
				t.Errorf("%d is called late", offset)
			}
		}
		var behind, below []uint64
		for _, offset := range run {
			if offset <= mark {
				behind = append(behind, offset)
			}
		}
		for _, offset := range found {
			if offset <= mark {
				below = append(below, offset)
			}
		}
		if !slices.Equal(slices.Concat(behind, ahead), run) {
			t.Errorf("%v behind and %v ahead do not make %v", behind, ahead, run)
		}
		if !slices.Equal(passed, below) {
			t.Errorf("passed %v, want %v", passed, below)
		}
		if next := slices.IndexFunc(stored, func(o uint64) bool { return o > watermark && !isSettled(o) }); len(ahead) > 0 &&
			(next < 0 || stored[next] > ahead[0]) {
			t.Errorf("stopped at %d before %v with nothing in between: %v", mark, ahead, stored)
		}
		if d := cmp.Diff(len(late) == 0, len(ahead) == 0); d != "" {
			t.Errorf("late %v, ahead %v", late, ahead)
		}
	})
}
