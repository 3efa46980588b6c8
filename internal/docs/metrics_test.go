package docs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/uber-go/tally/v4"
	tallyprom "github.com/uber-go/tally/v4/prometheus"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// series are the metrics of a service.
type series struct {
	labels map[string]map[string]bool // by metric
	kinds  map[string]string          // likewise: counter, gauge or histogram
	values map[string]float64         // the sum over all labels; of a histogram, its count
}

// service is what a test makes of a queue that reports to a scope.
type service func(t *testing.T, scope tally.Scope, set tenants.Set, tagged int) backend.Queue

func onMemory(t *testing.T, scope tally.Scope, set tenants.Set, tagged int) backend.Queue {
	q, err := memory.NewQueue(memory.Params{Tenants: set, Scope: scope, TenantMetrics: tagged})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func onMySQL(t *testing.T, scope tally.Scope, set tenants.Set, tagged int) backend.Queue {
	db, err := mysql.Open(testdb.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := mysql.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	q, err := mysql.NewQueue(mysql.Params{DB: db, Tenants: set, Scope: scope, TenantMetrics: tagged})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run publishes messages that succeed, fail, wait and are given up, as the
// module would wire it, and returns what tally's Prometheus reporter has of it.
func run(t *testing.T, open service, tagged int) series {
	t.Helper()
	registry := prometheus.NewRegistry()
	scope, closer := tally.NewRootScope(tally.ScopeOptions{
		CachedReporter: tallyprom.NewReporter(tallyprom.Options{Registerer: registry}), Separator: tallyprom.DefaultSeparator,
	}, 0)
	scope = scope.SubScope("mq")
	set, err := tenants.New("first", "second")
	if err != nil {
		t.Fatal(err)
	}
	q := open(t, scope, set, tagged)
	settled := make(chan string, 10)
	handler := consume.Func(consume.Subscription{Topic: "topic", Group: "group"}, func(_ context.Context, d consume.Delivery) error {
		switch {
		case d.ID == "rejected":
			return consume.Reject(errors.New("never"))
		case d.ID == "failing" && d.Attempt == 1:
			return errors.New("not yet")
		}
		settled <- d.ID
		return nil
	})
	dead := consume.Func(consume.Subscription{Topic: "topic_dlq", Group: "undertakers"}, func(_ context.Context, d consume.Delivery) error {
		settled <- d.ID
		return nil
	})
	runner, err := consume.NewRunner(consume.Params{
		Subscriber: q, Handlers: []consume.Handler{handler, dead}, Scope: scope,
		Defaults: backend.SubscriptionConfig{Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := publish.New(q)
	var msgs []publish.Message
	for _, id := range []string{"well", "failing", "rejected", "well"} {
		msgs = append(msgs, publish.Message{ID: id, PartitionKey: "key", Payload: []byte("{}")})
	}
	for _, tenant := range set.IDs() {
		if _, err := p.Publish(t.Context(), tenant, "topic", msgs...); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		select {
		case <-settled:
		case <-time.After(time.Minute):
			t.Fatal("not all settled within a minute")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(runner.Stop(ctx), q.Close(ctx), closer.Close()); err != nil {
		t.Fatal(err)
	}
	return gather(t, registry)
}

func gather(t *testing.T, registry *prometheus.Registry) series {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s := series{labels: make(map[string]map[string]bool), kinds: make(map[string]string), values: make(map[string]float64)}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "mq_") {
			continue // tally's own
		}
		s.kinds[name] = strings.ToLower(f.GetType().String())
		s.labels[name] = make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				s.labels[name][l.GetName()] = true
			}
			s.values[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return s
}

// described is a row of docs/metrics.md.
type described struct {
	kind       string
	labels     []string // sorted
	tenant     bool     // with [tenant]
	onlyOnSQL  bool
	hasMeaning bool
}

func describedMetrics(t *testing.T) map[string]described {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]described)
	section := ""
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		if !strings.HasPrefix(line, "| `mq_") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 6 {
			t.Fatalf("%d cells, want 6: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if _, twice := rows[name]; twice {
			t.Errorf("%s has two rows", name)
		}
		row := described{
			kind: cells[1], tenant: strings.Contains(cells[2], "`[tenant]`"), onlyOnSQL: section == "Only on MySQL", hasMeaning: cells[4] != "",
		}
		for l := range strings.FieldsSeq(cells[2]) {
			if l != "`[tenant]`" {
				row.labels = append(row.labels, strings.Trim(l, "`"))
			}
		}
		slices.Sort(row.labels)
		rows[name] = row
	}
	return rows
}

// TestMetricsAreThoseDescribed compares docs/metrics.md with what either backend
// emits, with and without tenants.
func TestMetricsAreThoseDescribed(t *testing.T) {
	rows := describedMetrics(t)
	for name, c := range map[string]struct {
		open   service
		sql    bool
		tagged int
	}{
		"memory": {onMemory, false, 0}, "memory, by tenant": {onMemory, false, 1},
		"MySQL": {onMySQL, true, 0}, "MySQL, by tenant": {onMySQL, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, c.open, c.tagged)
			for name, row := range rows {
				if row.onlyOnSQL && !c.sql {
					continue
				}
				if got.kinds[name] != row.kind || !row.hasMeaning {
					t.Errorf("%s is described as %s (with a meaning: %v), and is %q", name, row.kind, row.hasMeaning, got.kinds[name])
					continue
				}
				want := slices.Clone(row.labels)
				if row.tenant && c.tagged > 0 {
					want = append(want, "tenant")
				}
				slices.Sort(want)
				if d := cmp.Diff(want, slices.Sorted(maps.Keys(got.labels[name])), cmp.Transformer("empty", nonNil)); d != "" {
					t.Errorf("labels of %s (-described +emitted):\n%s", name, d)
				}
			}
			for name := range got.kinds {
				if row, ok := rows[name]; !ok || row.onlyOnSQL && !c.sql {
					t.Errorf("%s is emitted and not described", name)
				}
			}
			// What it counts is what has happened, for both tenants.
			for name, want := range map[string]float64{
				"mq_messages_published": 6, "mq_publish_duplicates": 2, "mq_messages_delivered": 2*4 + 2, "mq_messages_settled": 2*4 + 2,
				"mq_messages_dead_lettered": 2, "mq_delivery_age": 6 + 2, "mq_consume_deliveries": 2*4 + 2, "mq_consume_handle_duration": 2*4 + 2,
				"mq_leases_held": 0, "mq_lag_messages": 0, "mq_consume_in_flight": 0, "mq_publish_batch_size": 2,
			} {
				if v := got.values[name]; v != want {
					t.Errorf("%s = %v, want %v", name, v, want)
				}
			}
		})
	}
}

func nonNil(list []string) []string { return append([]string{}, list...) }

// dashboard is what the test reads of docs/grafana/tenantmq.json.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  struct{ UID string }
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ RefID, Expr string }
	}
}

var (
	metricIn = regexp.MustCompile(`\b(mq_\w+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby\s*\(([^)]*)\)`)
	variable = regexp.MustCompile(`label_values\(.*, (\w+)\)`)
)

// faults lists what a query asks for and no service emits.
func (s series) faults(query string) (found []string) {
	used := metricIn.FindAllStringSubmatch(query, -1)
	if len(used) == 0 {
		found = append(found, "no metric in it")
	}
	var wanted []string
	for _, by := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			wanted = append(wanted, strings.TrimSpace(label))
		}
	}
	if v := variable.FindStringSubmatch(query); v != nil {
		wanted = append(wanted, v[1])
	}
	for _, u := range used {
		name, suffix := u[1], ""
		for _, end := range []string{"_bucket", "_count"} {
			if base, ok := strings.CutSuffix(name, end); ok && s.kinds[base] == "histogram" {
				name, suffix = base, end
			}
		}
		switch {
		case s.kinds[name] == "":
			found = append(found, name+" is not emitted")
			continue
		case (s.kinds[name] == "histogram") != (suffix != ""):
			found = append(found, fmt.Sprintf("%s is a %s", u[1], s.kinds[name]))
		case s.kinds[name] == "counter" && !strings.Contains(query, "rate(") && !strings.Contains(query, "increase(") && !variable.MatchString(query):
			found = append(found, name+" is a counter without a rate")
		}
		labels := slices.Clone(wanted)
		for _, m := range matcher.FindAllStringSubmatch(u[2], -1) {
			labels = append(labels, m[1])
		}
		for _, l := range labels {
			if !s.labels[name][l] && (l != "le" || suffix != "_bucket") {
				found = append(found, fmt.Sprintf("%s has no label %s", name, l))
			}
		}
	}
	return found
}

// TestDashboardAsksForWhatIsEmitted checks every query of the dashboard, and
// that all but a few metrics are on it.
func TestDashboardAsksForWhatIsEmitted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "grafana", "tenantmq.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	emitted := run(t, onMySQL, 0)
	shown := make(map[string]bool)
	check := func(where, query string) {
		for _, fault := range emitted.faults(query) {
			t.Errorf("%s: %s: %s", where, fault, query)
		}
		for _, u := range metricIn.FindAllStringSubmatch(query, -1) {
			shown[strings.TrimSuffix(strings.TrimSuffix(u[1], "_bucket"), "_count")] = true
		}
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
		if v.Type == "query" {
			check("variable "+v.Name, v.Definition)
		}
	}
	if want := []string{"datasource", "topic", "group"}; !slices.Equal(names, want) || d.SchemaVersion < 39 {
		t.Errorf("variables %v, want %v; schema version %d", names, want, d.SchemaVersion)
	}
	ids := make(map[int]bool)
	for i, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q: %d queries on %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
		for _, target := range p.Targets {
			check("panel "+p.Title, target.Expr)
		}
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q lie on each other", p.Title, o.Title)
			}
		}
	}
	for name := range emitted.kinds {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestFaultsOfQueriesAreFound(t *testing.T) {
	s := series{
		kinds: map[string]string{"mq_c": "counter", "mq_g": "gauge", "mq_h": "histogram"},
		labels: map[string]map[string]bool{
			"mq_c": {"topic": true}, "mq_g": {"topic": true}, "mq_h": {"topic": true},
		},
	}
	for query, faulty := range map[string]bool{
		`sum by (topic) (rate(mq_c{topic=~"$topic"}[5m]))`: false,
		`max(mq_g)`: false,
		`histogram_quantile(0.9, sum by (le, topic) (rate(mq_h_bucket[5m])))`: false,
		`rate(mq_h_count[5m])`:               false,
		`label_values(mq_c, topic)`:          false,
		`rate(up[5m])`:                       true,
		`rate(mq_d[5m])`:                     true,
		`rate(mq_c_total[5m])`:               true,
		`mq_c`:                               true,
		`rate(mq_h[5m])`:                     true,
		`rate(mq_c_bucket[5m])`:              true,
		`sum by (le) (rate(mq_c[5m]))`:       true,
		`sum by (group) (rate(mq_c[5m]))`:    true,
		`rate(mq_c{consumer_group="x"}[5m])`: true,
		`label_values(mq_c, tenant)`:         true,
	} {
		if found := s.faults(query); len(found) > 0 != faulty {
			t.Errorf("%s: found %q", query, found)
		}
	}
}
