package mysql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

func (f *fixture) collect(s *store, passed ...engine.Passed) []string {
	f.Helper()
	stale, err := s.Collect(f.Context(), tenantA, passed)
	if err != nil {
		f.Fatal(err)
	}
	return stale
}

func (f *fixture) purge(s *store) {
	f.Helper()
	if err := s.Purge(f.Context(), []tenants.ID{tenantA, "nobody"}); err != nil {
		f.Fatal(err)
	}
}

// The last group to pass may not see that it is; then somebody collects.
func TestCollectRemovesWhatAllGroupsHavePassed(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	run := f.publish("k", maxRemove+10)
	other := f.publish("other", 3)
	pass := func(s *store, key string, offset uint64) {
		t.Helper()
		mustExec(t, f.db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, ?, ?, ?, 0)",
			string(tenantA), topicA, key, s.group, offset)
	}
	last := run[len(run)-1]
	pass(a, "k", last)
	pass(a, "other", other[2])
	pass(b, "other", other[1])
	k := engine.Passed{Key: "k", Watermark: last, Stored: true}
	o := engine.Passed{Key: "other", Watermark: other[2], Stored: true}

	f.want("stale", []string(nil), f.collect(a, k, o))
	f.want("left while the other group has not begun", map[string]int{"queue_messages": len(run) + 1, "queue_offsets": 3}, f.rows())

	pass(b, "k", last)
	mustExec(t, f.db, "INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, acked) VALUES (?, ?, ?, 'k', ?, 1)",
		string(tenantA), groupA, topicA, run[3])
	f.collect(a, o, k)
	f.want("left after a bounded clean-up", map[string]int{"queue_messages": 11, "queue_offsets": 4}, f.rows())
	f.grant(b, "k", 0)
	f.collect(a, k)
	f.want("left while the other group has the lease", map[string]int{"queue_messages": 1, "queue_offsets": 3, "queue_partition_leases": 1}, f.rows())
	acked, ok := f.mark(groupB, "k")
	f.want("watermark of the other group", []any{last, true}, []any{acked, ok})
}

func TestCollectReportsWhatTheOwnerMistakes(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	run := f.publish("moved", 3)
	f.publish("gone", 1)
	f.publish("none", 1)
	g := f.grant(s, "moved", 0)
	f.settle(s, engine.Settlement{Lease: g.Lease, Run: run[:1]})
	before := f.rows()
	f.want("stale", []string{"gone", "moved", "none"}, f.collect(s,
		engine.Passed{Key: "none", Watermark: 5},
		engine.Passed{Key: "moved", Watermark: run[1], Stored: true},
		engine.Passed{Key: "gone", Watermark: 1, Stored: true}))
	f.want("rows", before, f.rows())
	f.want("stale, as it is", []string(nil), f.collect(s, engine.Passed{Key: "moved", Watermark: run[0], Stored: true}, engine.Passed{Key: "none"}))
}

func TestPurgeRemovesWhatTheDeadLeftBehind(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	beat := func(s *store) {
		t.Helper()
		if err := s.Beat(t.Context(), tenantA); err != nil {
			t.Fatal(err)
		}
	}
	dead := f.unregistered(topicA, groupA, "dead")
	beat(s)
	beat(dead)
	mustExec(t, f.db, "UPDATE queue_subscriber_heartbeats SET expires_at = 1 WHERE subscriber_name = 'dead'")

	// In every table a row to go, and one like it to stay.
	stays, goes := f.publish("stays", 2), f.publish("goes", 2)
	for _, p := range []struct {
		key string
		run []uint64
	}{{"stays", stays}, {"goes", goes}} {
		g := f.grant(dead, p.key, p.run[1])
		f.settle(dead, engine.Settlement{Lease: g.Lease, Run: p.run[:1], States: []engine.State{{Offset: p.run[1], Attempts: 1}}})
	}
	f.expire(dead, "stays", "goes")
	mustExec(t, f.db, "DELETE FROM queue_messages WHERE partition_key = 'goes'")
	f.grant(s, "leased", 0)
	released := f.grant(s, "released", 0)
	f.release(s, engine.Release{Lease: released.Lease})
	justExpired := f.grant(dead, "just expired", 0)
	mustExec(t, f.db, "UPDATE queue_partition_leases SET lease_expires_at = "+nowMillis+" WHERE partition_key = ?", justExpired.Key)

	f.purge(s)
	f.purge(s) // what a lease kept goes with the next round
	f.wantRows(map[string]int{
		"queue_messages": 1, "queue_offsets": 1, "queue_delivery_state": 1, "queue_partition_leases": 3, "queue_subscriber_heartbeats": 1,
	})
	for _, key := range []string{"stays", "leased", "just expired"} {
		f.want("leases of "+key, 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_partition_leases WHERE partition_key = ?", key))
	}
	g := f.grant(s, "stays", 0)
	f.want("grant", engine.Grant{
		Lease: g.Lease, Watermark: stays[0], Stored: true, Suspect: stays[1], States: []engine.State{{Offset: stays[1], Attempts: 1}},
	}, g)
	f.want("registrations", 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE partition_key = ''"))
}

// What was used since the purge has looked stays.
func TestPurgeLeavesWhatIsInUseAgain(t *testing.T) {
	f := newFixture(t)
	s, other := f.store(groupA, "one"), f.store(groupA, "two")
	run := f.publish("k", 1)
	g := f.grant(s, "k", 0)
	f.settle(s, engine.Settlement{Lease: g.Lease, Run: run})
	f.release(s, engine.Release{Lease: g.Lease})
	seen := []mark{{"k", groupA, run[0]}}
	stale := []rowKey{rowOfLease(g.Lease)}

	taken := f.grant(other, "k", 0)
	leased, err := s.leased(t.Context(), f.db, tenantA, seen, lockInShare)
	f.want("leased", []any{map[mark]bool{{key: "k", group: groupA}: true}, error(nil)}, []any{leased, err})
	q := leaseList.query(true, "DELETE", stale, string(tenantA), groupA, topicA).add(ifOver)
	if err := s.exec(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	f.want("lost", []string(nil), f.renew(other, taken.Lease))

	more := f.publish("k", 2)
	f.settle(other, engine.Settlement{Lease: taken.Lease, Watermark: run[0], Stored: true, Run: more[:1]})
	if err := s.dropMarks(t.Context(), f.db, tenantA, seen); err != nil {
		t.Fatal(err)
	}
	acked, ok := f.mark(groupA, "k")
	f.want("watermark", []any{more[0], true}, []any{acked, ok})
}

func TestPauseSurvivesAndIsIdempotent(t *testing.T) {
	f := newFixture(t)
	f.store(groupA, "one")
	f.store(groupB, "one")
	ctx := t.Context()
	for _, c := range []struct {
		err   error
		want  error
		state int
	}{
		{f.q.Pause(ctx, tenantA, topicA, groupA), nil, 1},
		{f.q.Pause(ctx, tenantA, topicA, groupA), nil, 1},
		{f.q.Pause(ctx, tenantA, topicA, "nobody"), backend.ErrNotFound, 0},
		{f.q.Resume(ctx, "nobody", topicA, groupA), backend.ErrNotFound, 0},
		{f.q.Pause(ctx, tenantA, "nothing", groupA), backend.ErrNotFound, 0},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("got %v, want %v", c.err, c.want)
		}
	}
	f.want("paused groups", 1, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE paused = 1"))
	for range 2 {
		if err := f.q.Resume(ctx, tenantA, topicA, groupA); err != nil {
			t.Error(err)
		}
	}
	f.want("paused groups", 0, queryInt(t, f.db, "SELECT COUNT(*) FROM queue_offsets WHERE paused = 1"))
	for name, err := range map[string]error{
		"tenant":         f.q.Pause(ctx, "ü", topicA, groupA),
		"topic":          f.q.Resume(ctx, tenantA, "", groupA),
		"consumer group": f.q.DropGroup(ctx, tenantA, topicA, "x "),
	} {
		if field, ok := errors.AsType[*backend.FieldError](err); !ok || field.Field != name {
			t.Errorf("bad %s: %v", name, err)
		}
	}
}

func TestDropGroupLeavesTheOthersAlone(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	keys := partitionKeys(2*listKeys + 5)
	var candidates []engine.Candidate
	for _, key := range keys {
		candidates = append(candidates, engine.Candidate{Key: key})
	}
	for _, s := range []*store{a, b} {
		var settlements []engine.Settlement
		for _, g := range f.acquire(s, candidates...).Grants {
			settlements = append(settlements, engine.Settlement{
				Lease: g.Lease, States: []engine.State{{Offset: 9, Attempts: 1}, {Offset: 10, Settled: true}},
			})
		}
		f.settle(s, settlements...)
		if err := s.Beat(t.Context(), tenantA); err != nil {
			t.Fatal(err)
		}
		mustExec(t, f.db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at)"+
			" SELECT tenant, topic, partition_key, consumer_group, 8, 0 FROM queue_partition_leases WHERE consumer_group = ?", s.group)
	}
	run := f.publish("k", 1)
	if err := f.q.DropGroup(t.Context(), tenantA, topicA, groupA); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{
		"queue_partition_leases": len(keys), "queue_delivery_state": 2 * len(keys), "queue_offsets": len(keys) + 1, "queue_subscriber_heartbeats": 1,
	} {
		for group, want := range map[string]int{groupA: 0, groupB: want} {
			f.want(fmt.Sprintf("rows of %s in %s", group, table), want,
				queryInt(t, f.db, "SELECT COUNT(*) FROM "+table+" WHERE consumer_group = ?", group))
		}
	}
	if err := f.q.DropGroup(t.Context(), tenantA, topicA, groupA); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("drop it twice: %v", err)
	}
	g := f.grant(b, "k", 0)
	f.want("nobody is waited for", []engine.Settled{{Drained: true}}, f.settle(b, engine.Settlement{Lease: g.Lease, Run: run, Drained: true}))
}

func TestOperatorsVerbsEndWithTheQueue(t *testing.T) {
	f := newFixture(t)
	f.store(groupA, "one")
	if err := f.q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"pause":   f.q.Pause(t.Context(), tenantA, topicA, groupA),
		"resume":  f.q.Resume(t.Context(), tenantA, topicA, groupA),
		"redrive": f.q.Redrive(t.Context(), tenantA, topicA, "k", "m"),
		"drop":    f.q.DropGroup(t.Context(), tenantA, topicA, groupA),
	} {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
