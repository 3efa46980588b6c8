package mqfx

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestNothingConfiguredIsTheDefault(t *testing.T) {
	want := DefaultConfig()
	if err := want.validate(); err != nil {
		t.Fatal(err)
	}
	for name, texts := range map[string][]string{
		"no file": nil, "comments": {"# nothing yet\n"}, "empty section": {"mq: {}"},
		"another section and an empty one": {"http: {port: 80}\nmq: {}"},
		"a comment, then a section":        {"# nothing\n", "mq: {}"},
	} {
		if diff := cmp.Diff(want, mustLoad(t, texts...)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	c := Config{}.complete()
	c.derive()
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("a zero Config in Go: (-want +got)\n%s", diff)
	}
}

const everyKey = `
mq:
  backend: memory
  dsn: u:p@tcp(h:1)/d
  external_schema: true
  server_isolation: true
  tls_ca_file: /run/ca.pem
  pool: {max_open: 7, max_lifetime: 7m, reserve: 7}
  publish: {max_payload: 70, max_metadata: 71, max_batch_rows: 72, max_batch_bytes: 77777, timeout: 7s}
  subscription: &sub
    subscriber_name: alice
    ordering: relaxed
    start: latest
    max_in_flight: 80
    batch_size: 81
    poll_interval: 82ms
    visibility_timeout: 83s
    lease_duration: 84s
    lease_renewal: 8s
    retry: {max_attempts: 85, initial_backoff: 86ms, max_backoff: 87s, multiplier: 8}
    dead_letter: {disabled: true, suffix: .dead}
    handler_timeout: 89s
    tenant_weights: {acme: 88}
  topics: {land: *sub}
  group_retention: 72h
  drain_timeout: 9s
  log: {level: debug, format: console}
  metrics: {tenants: 9}
`

func TestEveryKeyIsRead(t *testing.T) {
	sub := Subscription{
		SubscriberName: "alice", Ordering: "relaxed", Start: "latest", MaxInFlight: 80, BatchSize: 81,
		PollInterval: 82 * time.Millisecond, VisibilityTimeout: 83 * time.Second,
		LeaseDuration: 84 * time.Second, LeaseRenewal: 8 * time.Second,
		Retry:      Retry{MaxAttempts: 85, InitialBackoff: 86 * time.Millisecond, MaxBackoff: 87 * time.Second, Multiplier: 8},
		DeadLetter: DeadLetter{Disabled: true, Suffix: ".dead"}, HandlerTimeout: 89 * time.Second,
		TenantWeights: map[tenants.ID]int{"acme": 88},
	}
	want := Config{
		Backend: "memory", DSN: "u:p@tcp(h:1)/d", TLSCAFile: "/run/ca.pem", ExternalSchema: true, ServerIsolation: true,
		Pool: Pool{MaxOpen: 7, MaxLifetime: 7 * time.Minute, Reserve: 7},
		Publish: Publish{
			MaxPayload: 70, MaxMetadata: 71, MaxBatchRows: 72, MaxBatchBytes: 77777, Timeout: 7 * time.Second,
		},
		Subscription: sub, Topics: map[string]Subscription{"land": sub},
		GroupRetention: 72 * time.Hour, DrainTimeout: 9 * time.Second, Log: Log{Level: "debug", Format: "console"},
		Metrics: Metrics{Tenants: 9},
	}
	got := mustLoad(t, everyKey)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// The text above must go with the struct: every field differs from its default.
	var compare func(key string, a, b reflect.Value)
	compare = func(key string, a, b reflect.Value) {
		if a.Kind() == reflect.Struct {
			for i := range a.NumField() {
				compare(key+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
			}
			return
		}
		if key != "Config.DSNFile" && key != "Config.Migrate" && reflect.DeepEqual(a.Interface(), b.Interface()) {
			t.Errorf("%s keeps its default: it is not in the test's text", key)
		}
	}
	compare("Config", reflect.ValueOf(got), reflect.ValueOf(DefaultConfig()))
}

func TestEveryKeyReachesTheBackend(t *testing.T) {
	c := mustLoad(t, everyKey)
	settings, err := c.For("land").settings()
	if err != nil {
		t.Fatal(err)
	}
	want := backend.SubscriptionConfig{
		SubscriberName: "alice", Ordering: backend.Relaxed, Start: backend.Latest, MaxInFlight: 80, BatchSize: 81,
		PollInterval: 82 * time.Millisecond, VisibilityTimeout: 83 * time.Second,
		LeaseDuration: 84 * time.Second, LeaseRenewal: 8 * time.Second,
		Retry: backend.RetryPolicy{
			MaxAttempts: 85, InitialBackoff: 86 * time.Millisecond, MaxBackoff: 87 * time.Second, Multiplier: 8,
		},
		DeadLetter:    backend.DeadLetterPolicy{Disabled: true, Suffix: ".dead"},
		TenantWeights: map[tenants.ID]int{"acme": 88},
	}
	if diff := cmp.Diff(want, settings); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantMySQL := mysql.Config{
		MaxPayload: 70, MaxMetadata: 71, MaxBatchRows: 72, MaxBatchBytes: 77777, PublishTimeout: 7 * time.Second,
		GroupRetention: 72 * time.Hour, ExternalSchema: true,
	}
	if diff := cmp.Diff(wantMySQL, c.mysql()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// The keys must keep up with the backends.
	for _, v := range []reflect.Value{reflect.ValueOf(settings), reflect.ValueOf(c.mysql())} {
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Group" && v.Field(i).IsZero() {
				t.Errorf("%v.%s is set by no key", v.Type(), name)
			}
		}
	}
}

func TestLogIsBuiltFromTheConfiguration(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	for _, tc := range []struct {
		log  Log
		want string // a regular expression
	}{
		{Log{Level: "info", Format: "json"}, `^{"level":"info","ts":"[^"]+","caller":"[^"]+","msg":"seen","k":"v"}\n$`},
		{Log{Level: "debug", Format: "console"}, `(?s)^[^{]+DEBUG.*hidden.*INFO.*seen\t{"k": "v"}\n$`},
		{Log{Level: "warn", Format: "json"}, `^$`},
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		os.Stderr = file
		log, err := tc.log.build()
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("hidden")
		log.Info("seen", zap.String("k", "v"))
		file.Close()
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(tc.want).Match(text) {
			t.Errorf("%+v writes %s", tc.log, text)
		}
	}
}

// The files that come with the project: one lists every key with its default,
// the other is for a machine at hand.
func TestFilesOfTheProject(t *testing.T) {
	base, err := os.ReadFile(filepath.Join("..", BaseFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultConfig(), mustLoad(t, string(base)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: (-default +file)\n%s", BaseFile, diff)
	}
	var check func(t reflect.Type)
	check = func(typ reflect.Type) {
		for f := range typ.Fields() {
			if key := f.Tag.Get("yaml"); !regexp.MustCompile(`(?m)^[ #]+` + key + `:`).Match(base) {
				t.Errorf("%s does not mention %s", BaseFile, key)
			}
			if f.Type.Kind() == reflect.Struct {
				check(f.Type)
			}
		}
	}
	check(reflect.TypeFor[Config]())

	c, err := process{lookup: env(nil)}.load([]file{{path: "../" + BaseFile}, {path: "../config/development.yaml"}})
	if err != nil || !c.Migrate || c.Log.Format != "console" {
		t.Errorf("development: %+v, %v", c, err)
	}
}

func TestTopicTakesWhatItLeavesOut(t *testing.T) {
	c := mustLoad(t, `
mq:
  subscription: {ordering: relaxed, lease_duration: 9s, handler_timeout: 1m, dead_letter: {disabled: true}, tenant_weights: {acme: 2}}
  topics:
    orders.created:
      {lease_duration: 6s, ordering: strict, handler_timeout: 0, dead_letter: {disabled: false}, tenant_weights: {globex: 3}}
    audit: {batch_size: 1}
`)
	general := c.Subscription
	if general.LeaseRenewal != 3*time.Second || len(general.TenantWeights) != 1 {
		t.Errorf("general subscription: renewal %v, weights %v", general.LeaseRenewal, general.TenantWeights)
	}
	want := general
	want.BatchSize = 1
	if diff := cmp.Diff(want, c.For("audit")); diff != "" {
		t.Errorf("audit: (-want +got)\n%s", diff)
	}
	want = general
	want.Ordering, want.DeadLetter.Disabled, want.HandlerTimeout = "strict", false, 0
	want.LeaseDuration, want.LeaseRenewal = 6*time.Second, 2*time.Second
	want.TenantWeights = map[tenants.ID]int{"acme": 2, "globex": 3}
	if diff := cmp.Diff(want, c.For("orders.created")); diff != "" {
		t.Errorf("orders.created: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(general, c.For("elsewhere")); diff != "" {
		t.Errorf("elsewhere: (-want +got)\n%s", diff)
	}

	inGo := Config{
		Subscription: Subscription{Ordering: "relaxed", LeaseDuration: 9 * time.Second, HandlerTimeout: time.Minute},
		Topics:       map[string]Subscription{"audit": {BatchSize: 1, LeaseDuration: 6 * time.Second}},
	}.complete()
	inGo.derive()
	if s := inGo.For("audit"); s.Ordering != "relaxed" || s.BatchSize != 1 || s.LeaseRenewal != 2*time.Second || s.HandlerTimeout != time.Minute {
		t.Errorf("audit in Go: %+v", s)
	}
}

func TestEveryRuleOfTheBackendHasAKey(t *testing.T) {
	keys := make(map[string]bool)
	var collect func(key string, s reflect.Type)
	collect = func(key string, s reflect.Type) {
		for f := range s.Fields() {
			name := key + "." + f.Tag.Get("yaml")
			keys[name] = true
			if f.Type.Kind() == reflect.Struct {
				collect(name, f.Type)
			}
		}
	}
	collect("mq.subscription", reflect.TypeFor[Subscription]())
	for _, field := range []string{
		"ordering", "start", "max in flight", "batch size", "poll interval", "visibility timeout", "lease duration", "lease renewal",
		"retry max attempts", "retry initial backoff", "retry max backoff", "retry multiplier", "dead letter suffix", "subscriber name",
	} {
		if key := subscriptionKey("mq.subscription", field); !keys[key] {
			t.Errorf("the backend's field %q becomes %s, which is no key", field, key)
		}
	}
}

// A file shared by several services names what only others have, and so does a
// misspelt one: the process says so.
func TestUnusedSettingsAreNamed(t *testing.T) {
	c := mustLoad(t, `
mq:
  subscription: {tenant_weights: {acme: 2, globx: 3}}
  topics:
    lnad: {batch_size: 1, tenant_weights: {nobody: 1}}
    land: {tenant_weights: {initech: 4, acme: 5}}
    build: {tenant_weights: {globex: 6}}
`)
	set, err := tenants.New("acme", "globex")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mq.subscription.tenant_weights.globx: this process does not serve the tenant; did you mean globex? list it in MQ_TENANTS or remove the weight",
		"mq.topics.land.tenant_weights.initech: this process does not serve the tenant; list it in MQ_TENANTS or remove the weight",
		"mq.topics.lnad: no handler consumes this topic; did you mean land? the handlers' are build, land",
	}
	if diff := cmp.Diff(want, c.Unused([]string{"land", "build"}, set)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if lines := c.Unused(nil, set); lines != nil {
		t.Errorf("a process that only publishes is told %q", lines)
	}
}
