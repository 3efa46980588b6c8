package mqfx

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// patient is a queue whose health a test decides.
type patient struct {
	adminQueue
	health backend.Health
	asked  error // of the context
}

func (p *patient) Health(ctx context.Context) backend.Health {
	p.asked = ctx.Err()
	return p.health
}

func TestHealthTellsWhatIsWrong(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	well := backend.SubscriptionHealth{Topic: "land", Group: "lander", PollInterval: time.Second, TickedAt: ago(time.Second), PolledAt: ago(time.Second)}
	stuck, stale, late := well, well, well
	stuck.TickedAt, stuck.PolledAt = ago(StuckAfter+2*time.Second), ago(StuckAfter+2*time.Second)
	stale.PolledAt = ago(StaleAfter + 2*time.Second)
	late.OverdueLeases = 2
	for name, tc := range map[string]struct {
		health      backend.Health
		live, ready string // "" means well
	}{
		"publishes only":     {},
		"well":               {health: backend.Health{Subscriptions: []backend.SubscriptionHealth{well}}},
		"database away":      {health: backend.Health{Store: errors.New("connection refused")}, ready: "mq.dsn mq@db:3306/mq: connection refused"},
		"looks in vain":      {health: backend.Health{Subscriptions: []backend.SubscriptionHealth{well, stale}}, ready: `topic "land", group "lander" has not found its work for 12s`},
		"leases overdue":     {health: backend.Health{Subscriptions: []backend.SubscriptionHealth{late}}, ready: `topic "land", group "lander" has 2 leases that could not be renewed in time`},
		"loop stands still":  {health: backend.Health{Subscriptions: []backend.SubscriptionHealth{stuck}}, live: `the poll loop of topic "land", group "lander" has stood still for 3m2s`, ready: "has not found its work"},
		"everything at once": {health: backend.Health{Store: errors.New("gone"), Subscriptions: []backend.SubscriptionHealth{stale, late}}, ready: "gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &patient{health: tc.health}
			q := &queue{p: queueParams{Config: Config{DSN: "mq:secret@tcp(db:3306)/mq"}}}
			q.opened.Store(&opened{adminQueue: p})
			q.started.Store(true)
			h := &Health{queue: q, now: func() time.Time { return now }}
			for path, want := range map[string]string{"/livez": tc.live, "/readyz": tc.ready} {
				w := httptest.NewRecorder()
				h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				if want == "" && (w.Code != 200 || w.Body.String() != "ok\n") || want != "" && (w.Code != 503 || !strings.Contains(w.Body.String(), want)) {
					t.Errorf("%s: %d %q, want %q", path, w.Code, w.Body, want)
				}
				if (path == "/livez") != (p.asked != nil) {
					t.Errorf("%s asked the database or did not: %v", path, p.asked)
				}
			}
		})
	}
}

func TestReadyOnlyOnceTheHandlersHaveStarted(t *testing.T) {
	type warmUp struct{}
	var h *Health
	var warming error
	set, err := tenants.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	app := fxtest.New(t, Module, WithTenants(set), WithConfig(Config{Backend: BackendMemory, Log: Log{Level: "error"}}), fx.Populate(&h),
		fx.Provide(func(lc fx.Lifecycle) warmUp {
			lc.Append(fx.StartHook(func(ctx context.Context) { warming = h.Ready(ctx) }))
			return warmUp{}
		}),
		Handle(func(warmUp) consume.Handler {
			return consume.Func(consume.Subscription{Topic: "land", Group: "g"}, func(context.Context, consume.Delivery) error { return nil })
		}))
	app.RequireStart()
	defer app.RequireStop()
	if !errors.Is(warming, ErrNotStarted) {
		t.Errorf("while what a handler depends on starts: %v", warming)
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Errorf("after the start: %v", err)
	}
}

// A stop may take as long as mq.drain_timeout says, and is no reason to kill the
// process.
func TestLiveWhileHandlersAreDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := tenants.New("acme")
		if err != nil {
			t.Fatal(err)
		}
		begun, release := make(chan struct{}), make(chan struct{})
		var h *Health
		var out publish.Publisher
		app := fxtest.New(t, Module, WithTenants(set), WithConfig(Config{Backend: BackendMemory, DrainTimeout: time.Hour, Log: Log{Level: "error"}}),
			fx.Populate(&h, &out), Handle(consume.Func(consume.Subscription{Topic: "land", Group: "g"}, func(context.Context, consume.Delivery) error {
				close(begun)
				<-release
				return nil
			})))
		app.RequireStart()
		if _, err := out.Publish(t.Context(), "acme", "land", publish.Message{ID: "1", PartitionKey: "key"}); err != nil {
			t.Fatal(err)
		}
		<-begun
		stopped := make(chan error)
		go func() { stopped <- app.Stop(t.Context()) }()
		time.Sleep(2 * StuckAfter)
		if err := h.Live(t.Context()); err != nil {
			t.Errorf("while handlers are drained: %v", err)
		}
		if err := h.Ready(t.Context()); !errors.Is(err, ErrStopping) {
			t.Errorf("while handlers are drained: %v", err)
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestReadyOnlyBetweenStartAndStop(t *testing.T) {
	var h *Health
	app := fxtest.New(t, Module, WithConfig(Config{Backend: BackendMemory, Log: Log{Level: "error"}}), fx.Populate(&h))
	if err := h.Ready(t.Context()); !errors.Is(err, ErrNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	if err := h.Live(t.Context()); err != nil {
		t.Errorf("a process that starts slowly is live: %v", err)
	}
	app.RequireStart()
	if err := h.Ready(t.Context()); err != nil {
		t.Errorf("after the start: %v", err)
	}
	app.RequireStop()
	if err := h.Ready(t.Context()); !errors.Is(err, ErrStopping) {
		t.Errorf("after the stop: %v", err)
	}
}

func TestHealthFollowsTheDatabase(t *testing.T) {
	server := testdb.StartServer(t)
	dsn := server.Database(t)
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := mysql.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	var h *Health
	app := fxtest.New(t, Module, WithConfig(Config{DSN: DSN(dsn), Log: Log{Level: "error"}}), fx.Populate(&h))
	app.RequireStart()
	defer app.RequireStop()
	if err := h.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "mq.dsn ") {
		t.Errorf("ready without a database: %v", err)
	}
	if err := h.Live(t.Context()); err != nil {
		t.Errorf("a restart would not bring the database back: %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}
