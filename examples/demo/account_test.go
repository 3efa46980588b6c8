package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/examples/internal/git"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		latency []time.Duration
		p       int
		want    time.Duration
	}{
		{nil, 50, 0},
		{hundred[:1], 50, 1},
		{hundred[:1], 99, 1},
		{hundred[:3], 50, 2},
		{hundred[:4], 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred[:99], 99, 99},
	} {
		if got := percentile(c.latency, c.p); got != c.want {
			t.Errorf("p%d of %d: got %d, want %d", c.p, len(c.latency), got, c.want)
		}
	}
}

func TestBalanceNamesTheQueue(t *testing.T) {
	plan := Plan{Queues: []string{"fx", "river"}, Changes: []Change{{Queue: "fx", Name: "a"}, {Queue: "river", Name: "b"}}}
	good := []account{
		{queue: "fx", sent: 1, accepted: 1, Outcome: Outcome{Landed: 1}},
		{queue: "river", sent: 1, accepted: 1, Outcome: Outcome{Landed: 1}},
	}
	if err := balance(good, plan); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*account){
		"lost":       func(a *account) { a.accepted, a.Landed = 0, 0 },
		"twice":      func(a *account) { a.accepted, a.Landed = 2, 2 },
		"unfinished": func(a *account) { a.Landed = 0 },
		"conflict":   func(a *account) { a.Landed, a.Conflicted = 0, 1 },
	} {
		bad := append([]account(nil), good...)
		spoil(&bad[1])
		if err := balance(bad, plan); err == nil || !strings.Contains(err.Error(), "river") || strings.Contains(err.Error(), "fx") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProofComparesBothWays(t *testing.T) {
	plan := Plan{Queues: []string{"fx"}, Changes: []Change{{Queue: "fx", Name: "a"}, {Queue: "fx", Name: "b"}}}
	path := filepath.Join(t.TempDir(), "repository.git")
	if err := git.Create(t.Context(), path, plan.commits()); err != nil {
		t.Fatal(err)
	}
	check := func(landed ...string) string {
		if err := prove(t.Context(), path, []account{{queue: "fx", landed: landed}}); err != nil {
			return err.Error()
		}
		return ""
	}
	if got := check(); got != "" {
		t.Error(got)
	}
	if _, err := git.Repository(path).Merge(t.Context(), "refs/heads/fx", ref(changeRef, "fx", "a"), "Land a"); err != nil {
		t.Fatal(err)
	}
	if got := check("a"); got != "" {
		t.Error(got)
	}
	if got := check("a", "b"); !strings.Contains(got, "change b landed on fx but was merged 0 times") {
		t.Errorf("missing: %q", got)
	}
	if got := check(); !strings.Contains(got, "did not land") {
		t.Errorf("unexpected: %q", got)
	}
}
