package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/tenants"
)

// Where a queue's target and changes are in the repository.
const (
	targetRef = "refs/heads/{queue}"
	changeRef = "refs/heads/change/{queue}/{change}"
)

// A change that touches so many files also rewrites its area's VERSION: of the
// sweeping changes of one area the first to be merged lands, and the others are
// in conflict with it, in whatever order they come. Every other change only
// adds a file of its own, so it lands.
const sweeping = 20

// Fault is what is wrong with a change.
type Fault int

const (
	None    Fault = iota
	Broken        // its check fails
	Crashes       // its check kills the process that runs it, once
	Missing       // its branch does not exist
)

// Change of the plan.
type Change struct {
	Queue, Name, Area string
	Files             int
	At                time.Duration // after the first one
	Fault             Fault
}

// Plan is the traffic, in order of time.
type Plan struct {
	Queues  []string
	Changes []Change
	// Shards of a keyspace, up to so many, each have a queue.
	Shards int
}

// builtinPlan is a few seconds' work for four queues, with one of each fault.
// xxhash puts one queue on each of four shards of Vitess: web, ios, docs, search.
func builtinPlan() Plan {
	const perQueue, spread = 40, 8 * time.Second
	p := Plan{Queues: []string{"docs", "ios", "search", "web"}, Shards: 4}
	for i := range perQueue {
		for q, queue := range p.Queues {
			c := Change{
				Queue: queue, Name: fmt.Sprintf("c%03d", i), Area: []string{"api", "core", "ui"}[(i+q)%3], Files: 1,
				At: spread * time.Duration(i) / perQueue,
			}
			if i%10 == q {
				c.Files, c.Area = sweeping, "core"
			}
			p.Changes = append(p.Changes, c)
		}
	}
	for i, fault := range []Fault{Broken, Crashes, Missing} {
		p.Changes[len(p.Queues)*(12+i)+i].Fault = fault // none of them is sweeping
	}
	return p
}

// readPlan reads landings, one JSON object a line:
//
//	{"queue": "fx", "change": "61a81fae49dc", "at": 1477527797, "area": "modules", "files": 5}
//
// at is in seconds. The whole time is compressed to the duration given, gaps and
// bursts in proportion.
func readPlan(name string, within time.Duration) (Plan, error) {
	f, err := os.Open(name)
	if err != nil {
		return Plan{}, err
	}
	defer f.Close()
	p, err := parsePlan(f, within)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func parsePlan(r io.Reader, within time.Duration) (Plan, error) {
	type record struct {
		Queue, Change, Area string
		At                  int64
		Files               int
	}
	var records []record
	seen := make(map[[2]string]int)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var l record
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return Plan{}, fmt.Errorf("line %d: %w", n, err)
		}
		// The queue becomes the name of a branch, too.
		if err := cmp.Or(landing.CheckChange(l.Change), landing.CheckChange(l.Queue), checkArea(l.Area)); err != nil {
			return Plan{}, fmt.Errorf("line %d: queue %q, area %q: %w", n, l.Queue, l.Area, err)
		}
		key := [2]string{l.Queue, l.Change}
		if first := seen[key]; first > 0 {
			return Plan{}, fmt.Errorf("line %d: repeats the change of line %d", n, first)
		}
		seen[key] = n
		records = append(records, l)
	}
	if err := lines.Err(); err != nil {
		return Plan{}, err
	}
	if len(records) == 0 {
		return Plan{}, errors.New("it holds no landings")
	}
	slices.SortStableFunc(records, func(a, b record) int { return int(a.At - b.At) })

	var p Plan
	start, span := records[0].At, max(1, records[len(records)-1].At-records[0].At)
	for _, l := range records {
		at := time.Duration(float64(l.At-start) / float64(span) * float64(within))
		p.Changes = append(p.Changes, Change{Queue: l.Queue, Name: l.Change, Area: l.Area, Files: l.Files, At: at})
		if !slices.Contains(p.Queues, l.Queue) {
			p.Queues = append(p.Queues, l.Queue)
		}
	}
	slices.Sort(p.Queues)
	_, err := tenants.Parse(p.tenants())
	return p, err
}

// checkArea accepts a folder whose name needs no quotes.
func checkArea(area string) error {
	if !fs.ValidPath(area) || strings.ContainsFunc(area, func(r rune) bool { return r <= ' ' || r == '"' }) {
		return errors.New("want an area that is a relative path without blanks, such as docs/api, or a dot")
	}
	return nil
}

// tenants is the plan's MQ_TENANTS.
func (p Plan) tenants() string { return strings.Join(p.Queues, ",") }

// commits of the repository: a target for each queue, and a branch for each
// change, all from the target's first commit.
func (p Plan) commits() []git.Commit {
	versions := make(map[string]string) // by queue
	known := make(map[[2]string]bool)
	for _, c := range p.Changes {
		if area := [2]string{c.Queue, c.Area}; !known[area] {
			known[area] = true
			versions[c.Queue] += " " + path.Join("src", c.Area, "VERSION")
		}
	}
	var commits []git.Commit
	for _, queue := range p.Queues {
		commits = append(commits, git.Commit{Ref: ref(targetRef, queue, ""), Files: versions[queue], Content: "0\n"})
	}
	for _, c := range p.Changes {
		files := path.Join("src", c.Area, c.Name+".txt")
		switch {
		case c.Fault == Missing:
			continue
		case c.Fault == Broken:
			files += " BROKEN"
		case c.Files >= sweeping:
			files += " " + path.Join("src", c.Area, "VERSION")
		}
		commits = append(commits, git.Commit{
			Ref: ref(changeRef, c.Queue, c.Name), From: ref(targetRef, c.Queue, ""), Files: files, Content: c.Name + "\n",
		})
	}
	return commits
}

func ref(pattern, queue, change string) string {
	return strings.NewReplacer("{queue}", queue, "{change}", change).Replace(pattern)
}

// Outcome counts how requests ended.
type Outcome struct{ Landed, Conflicted, CheckFailed, DeadLettered int }

// want is what must become of each queue's changes.
func (p Plan) want() map[string]Outcome {
	want := make(map[string]Outcome)
	swept := make(map[[2]string]bool)
	for _, c := range p.Changes {
		o, area := want[c.Queue], [2]string{c.Queue, c.Area}
		switch {
		case c.Fault == Broken:
			o.CheckFailed++
		case c.Fault == Missing:
			o.DeadLettered++
		case c.Files >= sweeping && swept[area]:
			o.Conflicted++
		default:
			swept[area] = swept[area] || c.Files >= sweeping
			o.Landed++
		}
		want[c.Queue] = o
	}
	return want
}

// first finds a change with a fault.
func (p Plan) first(f Fault) (Change, bool) {
	i := slices.IndexFunc(p.Changes, func(c Change) bool { return c.Fault == f })
	if i < 0 {
		return Change{}, false
	}
	return p.Changes[i], true
}

// kills counts the processes that are killed: one from outside, and one by a
// change that crashes.
func (p Plan) kills() int {
	if _, ok := p.first(Crashes); ok {
		return 2
	}
	return 1
}
