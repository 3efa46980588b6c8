package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/mqfx"
)

func TestTenantSumsUpItsGroups(t *testing.T) {
	var row topRow
	row.add(operator.Group{Subscribers: 2, Lag: backend.Lag{Messages: 3, Oldest: 7 * time.Second}})
	row.add(operator.Group{Paused: true, Lag: backend.Lag{Messages: 10_000, AtLeast: true, Oldest: time.Second}})
	want := topRow{Lag: count{10_003, true}, OldestMS: 7_000, Groups: 2, Paused: 1, Subscribers: 2}
	if d := cmp.Diff(want, row); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A change is told between two frames that know the lag, and not guessed.
func TestChangeNeedsTwoCounts(t *testing.T) {
	start := time.Now()
	exact, least := count{N: 100}, count{N: 100, AtLeast: true}
	for _, c := range []struct {
		before []topRow
		now    count
		want   string
	}{
		{[]topRow{{Tenant: "acme", Lag: count{N: 110}}}, exact, "-5.0"},
		{[]topRow{{Tenant: "acme", Lag: count{N: 85}}}, exact, "+7.5"},
		{[]topRow{{Tenant: "globex", Lag: exact}}, exact, "?"},
		{nil, exact, "?"},
		{[]topRow{{Tenant: "acme", Lag: least}}, exact, "?"},
		{[]topRow{{Tenant: "acme", Lag: exact}}, least, "?"},
	} {
		top := &top{last: frame{At: start, Tenants: c.before}}
		rate := top.change(frame{At: start.Add(2 * time.Second)}, topRow{Tenant: "acme", Lag: c.now})
		if got := changeCell(rate); got != c.want {
			t.Errorf("from %v to %v: %s, want %s", c.before, c.now, got, c.want)
		}
	}
}

func TestDeadLetterTopicsAreKnownByEverySuffix(t *testing.T) {
	cfg := mqfx.DefaultConfig()
	cfg.Topics = map[string]mqfx.Subscription{"land": {DeadLetter: mqfx.DeadLetter{Suffix: ".dead"}}}
	if d := cmp.Diff([]string{"_dlq", ".dead"}, suffixes(&session{cfg: cfg})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Of tenants without a lag, those with dead letters come first.
func TestTopPutsDeadLettersBeforeNothing(t *testing.T) {
	f := newFixture(t)
	f.publish(globex, dead, "k", "m")
	got := decode[frame](f.run("top", "--all-tenants", "--json", "--interval", "100ms").want(exitDone))
	if len(got.Tenants) != 2 || got.Tenants[0].Tenant != "globex" || got.Tenants[0].DeadLetters.N != 1 || got.Tenants[0].Lag.N != 0 {
		t.Errorf("%+v", got)
	}
}
