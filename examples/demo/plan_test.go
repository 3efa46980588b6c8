package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/examples/internal/git"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParsePlanCompressesTime(t *testing.T) {
	p, err := parsePlan(strings.NewReader(`
{"queue":"river","change":"b","at":1100,"area":".","files":1}
{"queue":"fx","change":"a","at":1000,"area":".github","files":30}

{"queue":"fx","change":"c","at":1400,"area":"a/b","files":0}`), 8*time.Second)
	want := Plan{Queues: []string{"fx", "river"}, Changes: []Change{
		{Queue: "fx", Name: "a", Area: ".github", Files: 30},
		{Queue: "river", Name: "b", Area: ".", Files: 1, At: 2 * time.Second},
		{Queue: "fx", Name: "c", Area: "a/b", At: 8 * time.Second},
	}}
	if diff := cmp.Diff(want, p); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestParsePlanNamesTheLine(t *testing.T) {
	const good = `{"queue":"fx","change":"a","at":1,"area":".","files":1}` + "\n"
	for text, want := range map[string]string{
		"":               "no landings",
		good + "{":       "line 2: unexpected end",
		good + good:      "line 2: repeats the change of line 1",
		good + "\n[1]":   "line 3: json",
		`{"queue":"fx"}`: "line 1: queue \"fx\", area \"\": change",
		`{"change":"a"}`: "want a branch's name",
		`{"queue":"fx","change":"a","area":"../x"}`:            "want an area",
		`{"queue":"fx","change":"a","area":"a b"}`:             "want an area",
		`{"queue":"fx","change":"a","at":"noon","area":"."}`:   "line 1: json",
		`{"queue":"fx,river","change":"a","at":1,"area":"."}`:  "want a branch's name",
		strings.Repeat("x", 100_000):                           "too long",
		`{"queue":"fx","change":"a/../../b","at":1,"area":""}`: "want a branch's name",
	} {
		if _, err := parsePlan(strings.NewReader(text), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// What the plan promises is what git does, in whatever order changes come.
func TestPlanComesTrue(t *testing.T) {
	p := builtinPlan()
	for _, reverse := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "repository.git")
		if err := git.Create(t.Context(), path, p.commits()); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]Outcome)
		for i := range p.Changes {
			c := p.Changes[i]
			if reverse {
				c = p.Changes[len(p.Changes)-1-i]
			}
			o := got[c.Queue]
			switch merge, err := git.Repository(path).Merge(t.Context(), ref(targetRef, c.Queue, ""), ref(changeRef, c.Queue, c.Name), "Land"); {
			case c.Fault == Missing && err != nil:
				o.DeadLettered++
			case err != nil:
				t.Fatal(err)
			case c.Fault == Broken:
				o.CheckFailed++ // merged here, for want of a check
			case len(merge.Conflicts) > 0:
				o.Conflicted++
			default:
				o.Landed++
			}
			got[c.Queue] = o
		}
		if diff := cmp.Diff(p.want(), got); diff != "" {
			t.Error(diff)
		}
	}
	if total := p.want(); total["docs"] == total["ios"] || total["ios"].Conflicted == 0 || p.kills() != 2 {
		t.Errorf("the plan lacks faults: %+v", total)
	}
}
