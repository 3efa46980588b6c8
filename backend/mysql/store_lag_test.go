package mysql

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

func (f *fixture) lags(s *store, list ...tenants.ID) map[tenants.ID]backend.Lag {
	f.Helper()
	lags, err := s.Lag(f.Context(), list)
	if err != nil {
		f.Fatal(err)
	}
	for _, lag := range lags {
		if lag.Oldest < 0 {
			f.Errorf("lag: %+v", lag)
		}
	}
	return lags
}

// age makes all messages of a partition older than they are.
func (f *fixture) age(key string, by time.Duration) {
	f.Helper()
	mustExec(f, f.db, "UPDATE queue_messages SET published_at = published_at - ? WHERE tenant = ? AND partition_key = ?",
		by.Milliseconds(), string(tenantA), key)
}

// One tenant or several, a few partitions or pages of them: the count is the
// same.
func TestLagIsExactUpToItsBound(t *testing.T) {
	f := newFixture(t)
	a, b := f.store(groupA, "a"), f.store(groupB, "b")
	run := f.publish("settled in part", 9)
	for i := range 1_150 { // more than a list of keys
		f.publish(fmt.Sprintf("key-%04d", i), 1)
	}
	mustPublish(t, f.q, message("other", topicA, "key", 1), message("stranger", topicA, "key", 1), message(tenantA, "another", "key", 1))
	f.age("key-0100", time.Hour)
	g := f.grant(a, "settled in part", 0)
	f.settle(a, engine.Settlement{
		Lease: g.Lease, Run: run[:2],
		States: []engine.State{{Offset: run[3], Settled: true}, {Offset: run[4], Attempts: 1, Delay: time.Hour}},
	})
	f.want("a watermark", run[1], func() uint64 { at, _ := f.mark(groupA, "settled in part"); return at }())
	for _, list := range [][]tenants.ID{{tenantA}, {tenantA, "other", "nobody"}} {
		lags := f.lags(a, list...)
		if got := lags[tenantA]; got.Messages != 1_150+9-3 || got.AtLeast || got.Oldest < time.Hour || got.Oldest > time.Hour+time.Minute {
			t.Errorf("of %v: %+v, want 1,156 messages, the oldest an hour old", list, got)
		}
		if len(list) > 1 && (lags["other"].Messages != 1 || lags["nobody"] != backend.Lag{}) {
			t.Errorf("of %v: %+v", list, lags)
		}
	}
	f.want("messages of the group that has settled none", 1_159, f.lags(b, tenantA)[tenantA].Messages)
}

func TestLagIsALowerBoundBeyond(t *testing.T) {
	f := newFixture(t)
	a := f.store(groupA, "a")
	f.store(groupB, "b")
	f.publish("z old", 1) // behind all others in the order of keys
	f.age("z old", time.Hour)
	for range backend.MaxLag/1000 - 1 {
		f.publish("deep", 1000)
	}
	f.publish("more", 999)
	want := backend.Lag{Messages: backend.MaxLag}
	got := f.lags(a, tenantA)[tenantA]
	if got.Oldest < time.Hour {
		t.Errorf("%+v, want one of an hour", got)
	}
	got.Oldest = 0
	f.want("lag at the bound", want, got)

	f.publish("deep", 1500)
	want.AtLeast = true
	for _, younger := range []int{0, 120} { // of one statement that counts, and of two
		for i := range younger {
			f.publish(fmt.Sprintf("key-%03d", i), 1)
		}
		got = f.lags(a, tenantA)[tenantA]
		if got.Oldest < time.Hour {
			t.Errorf("%+v, want one of an hour: it was not counted, and yet it is the oldest", got)
		}
		got.Oldest = 0
		f.want("lag beyond the bound", want, got)
	}
}

// A backlog of any size costs what is counted of it, and one that the group has
// passed nothing, whoever it waits for.
func TestLagReadsWhatItCounts(t *testing.T) {
	dsn := testdb.DSN(t)
	db := openDB(t, dsn)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	f := fixtureOn(t, newTestQueue(t, Params{DB: db}), db)
	a := f.store(groupA, "a")
	f.store(groupB, "b") // messages stay for it
	var run []uint64
	for range 6 {
		run = append(run, f.publish("passed", 1000)...)
	}
	for range 13 {
		f.publish("pending", 1000)
	}
	last := run[len(run)-1]
	mustExec(t, db, stmtSetMarks+markRow, string(tenantA), topicA, "passed", groupA, last)
	mustExec(t, db, "ANALYZE TABLE queue_messages")

	open, err := (&lagOf{store: a, tenant: tenantA}).pending(f.Context(), f.discover(a, []tenants.ID{tenantA}, "", 10))
	if err != nil || len(open) != 1 || open[0].key != "pending" {
		t.Errorf("to be counted: %+v, %v; want the partition that is not passed", open, err)
	}

	session := openDB(t, dsn)
	session.SetMaxOpenConns(1)
	alone := newStore(newTestQueue(t, Params{DB: session}), topicA, a.cfg, 99)
	for _, c := range []struct {
		want  int
		reads int
	}{{backend.MaxLag, 2 * backend.MaxLag}, {3, 100}} { // each row, and its delivery state
		before := sessionReads(t, session)
		lag := f.lags(alone, tenantA)[tenantA]
		reads := sessionReads(t, session) - before
		if lag.Messages != c.want || reads > c.reads+100 {
			t.Errorf("%+v, want %d messages; %d keys read, want %d at most", lag, c.want, reads, c.reads+100)
		}
		// The group catches up with the second partition but for three messages.
		mustExec(t, db, "INSERT INTO queue_offsets SELECT tenant, topic, partition_key, ?, MAX(`offset`) - 3, 0, 0 FROM queue_messages"+
			" WHERE tenant = ? AND partition_key = 'pending' GROUP BY tenant, topic, partition_key ON DUPLICATE KEY UPDATE offset_acked = offset_acked",
			groupA, string(tenantA))
	}
}

// The first partitions read are those that may hold the oldest message: a
// watermark that is far behind says little of what follows it.
func TestOldestIsFoundBehindOldWatermarks(t *testing.T) {
	f := newFixture(t)
	a := f.store(groupA, "a")
	keys := partitionKeys(3 * fetchDeepTerms)
	slices.Sort(keys)
	var skipped []pending
	for _, key := range keys {
		f.publish(key, 1)
	}
	old := f.publish("old", 1)[0]
	f.age("old", time.Hour)
	for _, key := range keys {
		r := f.publish(key, 1)
		skipped = append(skipped, pending{key: key, after: r[0] - 1, tail: r[0]})
	}
	// Two statements' worth of partitions that begin before it, and have nothing.
	for i := range 2 * fetchDeepTerms {
		skipped[i].after = 0
		mustExec(t, f.db, "DELETE FROM queue_messages WHERE tenant = ? AND partition_key = ? AND `offset` < ?", string(tenantA), skipped[i].key, old)
	}
	l := lagOf{store: a, tenant: tenantA, skipped: append(skipped, pending{key: "old", after: old - 1, tail: old})}
	if err := l.findOldest(f.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Oldest < time.Hour {
		t.Errorf("the oldest is of %v, want an hour", l.Oldest)
	}
}

func TestNowIsTheServersClock(t *testing.T) {
	f := newFixture(t)
	before := time.Now().Add(-time.Second)
	at, err := f.unregistered(topicA, groupA, "a").Now(t.Context())
	if err != nil || at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("%v, %v", at, err)
	}
}
