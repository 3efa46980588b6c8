package mysql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// consumer works on a few partitions as the engine would, and remembers what it
// was handed.
type consumer struct {
	*fixture
	s     *store
	parts map[string]*consumed
}

type consumed struct {
	lease     engine.Lease
	watermark uint64
	stored    bool
	hasStates bool
	seen      map[uint64]bool
	run       []uint64 // handled above the watermark
	total     int
}

func newConsumer(f *fixture, s *store, keys []string) *consumer {
	c := &consumer{fixture: f, s: s, parts: make(map[string]*consumed)}
	for _, key := range keys {
		c.parts[key] = &consumed{lease: f.grant(s, key, 0).Lease, seen: make(map[uint64]bool)}
	}
	return c
}

// round fetches what lies above what was handled and settles it; what arrived
// late is fetched by the watermark's word for it. It reports how many messages
// it was handed.
func (c *consumer) round() (handed int, err error) {
	var ranges []engine.Range
	var keys []string
	for key, p := range c.parts {
		after := p.watermark
		if n := len(p.run); n > 0 {
			after = p.run[n-1]
		}
		ranges = append(ranges, engine.Range{Key: key, After: after, Through: engine.Unbounded, Limit: 50})
		keys = append(keys, key)
	}
	fetched, err := c.s.Fetch(c.Context(), tenantA, ranges)
	if err != nil {
		return 0, err
	}
	var settlements []engine.Settlement
	for i, key := range keys {
		p := c.parts[key]
		for _, m := range fetched[i].Messages {
			p.handle(m.Offset)
			handed++
		}
		if len(p.run) > 0 {
			settlements = append(settlements, engine.Settlement{
				Lease: p.lease, Watermark: p.watermark, Stored: p.stored, HasStates: p.hasStates, Run: p.run[:min(len(p.run), engine.MaxRun)],
			})
		}
	}
	if len(settlements) == 0 {
		return handed, nil
	}
	results, err := c.s.Settle(c.Context(), tenantA, settlements)
	if err != nil {
		return 0, err
	}
	for i, r := range results {
		p := c.parts[settlements[i].Key]
		if r.Lost {
			return 0, fmt.Errorf("lost the lease of %q", settlements[i].Key)
		}
		p.watermark, p.stored = r.Watermark, r.Stored
		p.hasStates = p.hasStates || r.Stalled || len(r.Late) > 0
		p.run = slices.DeleteFunc(p.run, func(o uint64) bool { return o <= r.Watermark })
		for _, late := range r.Late {
			p.handle(late)
			handed++
		}
	}
	return handed, nil
}

func (p *consumed) handle(offset uint64) {
	if p.seen[offset] {
		return
	}
	p.seen[offset] = true
	p.total++
	at, _ := slices.BinarySearch(p.run, offset)
	p.run = slices.Insert(p.run, at, offset)
}

// stress has publishers store messages while a consumer settles, and returns
// how many of them were never handed over.
func stress(f *fixture, s *store, messages int) (lost int) {
	f.Helper()
	const publishers = 8
	keys := partitionKeys(3)
	c := newConsumer(f, s, keys)
	var published atomic.Int64
	var wait sync.WaitGroup
	for p := range publishers {
		wait.Go(func() {
			for n := range messages / publishers {
				id := fmt.Sprintf("%d-%d", p, n)
				key := keys[rand.IntN(len(keys))]
				m := backend.Message{Tenant: tenantA, Topic: topicA, PartitionKey: key, ID: id}
				var err error
				if n%4 == 0 { // some in transactions of their callers', a while before they commit
					err = publishInTx(f.Context(), f.db, f.q, []backend.Message{m})
				} else {
					_, err = f.q.Publish(f.Context(), m)
				}
				if err != nil {
					f.Error(err)
					return
				}
				published.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.Wait()
	}()
	defer func() { <-done }()
	for idle := 0; idle < 3; {
		over := false
		select {
		case <-done:
			over = true
		default:
		}
		handed, err := c.round()
		if err != nil {
			f.Error(err)
			return 0
		}
		if over && handed == 0 {
			idle++ // everything is committed now
		}
	}
	total := 0
	for _, p := range c.parts {
		total += p.total
	}
	return int(published.Load()) - total
}

func TestSettlingWhilePublishersRunLosesNothing(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	if lost := stress(f, s, 1_600); lost != 0 {
		t.Errorf("%d messages were skipped", lost)
	}
}

// Without its lock the watermark's read does not see who is inside the run, and
// passes him.
func TestWatermarkWithoutItsLockLosesMessages(t *testing.T) {
	for name, plain := range map[string]bool{"locking read": false, "plain read": true} {
		t.Run(name, func(t *testing.T) {
			passUncommitted(newFixture(t), plain)
		})
	}
}

// passUncommitted has a watermark move while a publisher is inside its run.
func passUncommitted(f *fixture, plain bool) {
	f.Helper()
	s := f.store(groupA, "one")
	s.hooks.plainRun = plain
	tx := f.begin()
	hidden := f.insert(tx, "k")
	seen := f.publish("k", 2)
	g := f.grant(s, "k", 0)
	r := f.settle(s, engine.Settlement{Lease: g.Lease, Run: seen})[0]
	commit(f, tx)
	f.want("stalled", !plain, r.Stalled)
	if lost := r.Watermark >= hidden; lost != plain {
		f.Errorf("the watermark is %d, the publisher committed %d", r.Watermark, hidden)
	}
}

// Without its limit the read goes on to the record behind the run, which is
// some publisher's newest, and never gets through while they publish.
func TestWatermarkWithoutItsLimitWaitsForTheNewest(t *testing.T) {
	for name, unlimited := range map[string]bool{"limited": false, "unlimited": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := f.store(groupA, "one")
			s.hooks.unlimitedRun = unlimited
			run := f.publish("k", 3)
			tx := f.begin()
			f.insert(tx, "k")
			g := f.grant(s, "k", 0)
			r := f.settle(s, engine.Settlement{Lease: g.Lease, Run: run})[0]
			f.want("stalled", unlimited, r.Stalled)
		})
	}
}

// A settlement, whatever it deletes, waits for no publisher in a neighbouring
// partition and none behind its run, also in a table that holds little else.
func TestSettlementsTouchNoNeighbour(t *testing.T) {
	forms := []struct {
		collation string
		listed    bool // as on Vitess
	}{{"utf8mb4_bin", false}, {"utf8mb4_general_ci", false}, {"utf8mb4_bin", true}, {"utf8mb4_general_ci", true}}
	for _, form := range forms {
		for name, c := range map[string]neighbours{
			"some drained":              {messages: 10, drained: true},
			"some with states":          {messages: 10, drained: true, states: true},
			"a few":                     {messages: 2, states: true},
			"as many as make a range":   {messages: dropByRange + 5, states: true},
			"more than a list, drained": {messages: listTerms + 5, drained: true, states: true},
		} {
			c.listed = form.listed
			t.Run(fmt.Sprintf("%s, %s, listed=%v", name, form.collation, form.listed), func(t *testing.T) {
				touchNoNeighbour(newFixtureWith(t, form.collation), c)
			})
		}
	}
}

type neighbours struct {
	messages int
	drained  bool
	states   bool
	listed   bool // rows are named by OR-lists
}

func touchNoNeighbour(f *fixture, c neighbours) {
	s, other := f.store(groupA, "one"), f.store(groupA, "two")
	keys := []string{"b", "d"}
	settlements := make([]engine.Settlement, len(keys))
	for i, key := range keys {
		settlements[i].Run = f.publish(key, c.messages)
		settlements[i].Drained = c.drained
		settlements[i].HasStates = c.states
	}
	for _, key := range []string{"a", "c", "e"} {
		f.publish(key, 1)
	}
	f.lease(s, settlements, keys)
	neighbour := f.grant(other, "c", 0)
	if c.states {
		for i := range settlements {
			st := engine.State{Offset: settlements[i].Run[0], Attempts: 1}
			f.settle(s, engine.Settlement{Lease: settlements[i].Lease, States: []engine.State{st}})
		}
	}

	f.q.vitess.Store(c.listed)

	// Everybody around is in the middle of something.
	tx := f.begin()
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		f.insert(tx, key)
	}
	mustExec(f, tx, "UPDATE queue_partition_leases SET claimed_offset = 1"+ofGroup+" AND partition_key = 'c'", string(tenantA), groupA, topicA)
	mustExec(f, tx, stmtSetStates+ackedRow, string(tenantA), groupA, topicA, "c", 1)
	mustExec(f, tx, stmtSetMarks+markRow, string(tenantA), topicA, "c", groupA, 1)

	ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
	defer cancel()
	results, err := s.Settle(ctx, tenantA, settlements)
	if err != nil {
		f.Fatalf("it waited: %v", err)
	}
	for i, r := range results {
		if r.Lost || r.Stalled || len(r.Late) > 0 || r.Drained != c.drained {
			f.Errorf("partition %s: %+v", keys[i], r)
		}
	}
	commit(f, tx)
	f.want("lost by the neighbour", []string(nil), f.renew(other, neighbour.Lease))
}
