package mqfx_test

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Ways in which Fx surprises, and the test that holds what is done about each:
//
//	OnStart's context ends once started       TestStartContextIsNotKept
//	Start returns, its hooks keep running     TestStartEndsWithItsContext, TestStartThatTimesOutStopsWhatItStarted
//	stop hooks share one budget               TestStopLeavesTimeForTheHooksBehindIt
//	a failing fx.New runs no OnStop           TestFailedConstructionLeavesNothing
//	a module's Invokes run before its         TestHandlersStartAfterWhatTheyTake
//	parent's
//	what nobody needs is never constructed    TestHandlersNeedTenants
//	a mistyped group is an empty one          TestHandleTakesConstructorsAndHandlers, TestDuplicateHandlersAreRefused
//	groups come in random order               TestHandlersSubscribeInOrder
//	Replace and Decorate reach plumbing       TestWhatUsersWrapIsPublic
//	Supply loses interface types              TestHandleTakesConstructorsAndHandlers
//	*sql.DB collides with the application's   TestDatabaseDoesNotCollideAndStaysOpen
//	Decorate of what is absent fails          TestLoggerAndScopeAreOptional
//	ValidateApp runs no constructor           TestGraphValidatesAndStarts
//	fxtest.Lifecycle sets no deadline         TestStopWaitsForHandlers, TestDrainTimeoutApplies
//	a module can be listed twice              TestModuleListedTwice

// subscribeHook is a queue that tells who subscribes to what.
type subscribeHook struct {
	backend.Queue
	do func(string)
}

func (s subscribeHook) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	s.do(topic + "/" + cfg.Group)
	return s.Queue.Subscribe(ctx, topic, cfg)
}

func TestHandlersStartAfterWhatTheyTake(t *testing.T) {
	type store struct{}
	var order []string
	got := newCollector("land")
	// The module's Invoke runs before the application's: what a handler needs
	// must not wait for one.
	start(t, fx.Invoke(func(*store) {}), inMemory(t),
		fx.Provide(func(lc fx.Lifecycle) *store {
			lc.Append(fx.StartHook(func() { order = append(order, "store") }))
			return new(store)
		}),
		mqfx.Handle(func(s *store) *collector { return got }),
		fx.Decorate(func(q backend.Queue) backend.Queue {
			return subscribeHook{q, func(string) { order = append(order, "handler") }}
		}))
	if strings.Join(order, " ") != "store handler" {
		t.Errorf("started in the order %v", order)
	}
}

// wrapper is what an application may put around a publisher.
type wrapper struct {
	publish.Publisher
	calls *atomic.Int32
}

func (w wrapper) Publish(ctx context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	w.calls.Add(1)
	return w.Publisher.Publish(ctx, tenant, topic, msgs...)
}

func TestWhatUsersWrapIsPublic(t *testing.T) {
	var calls atomic.Int32
	var subscribed []string
	got := newCollector("second")
	var out publish.Publisher
	start(t, inMemory(t), fx.Populate(&out),
		fx.Replace(set(t, "acme", "globex")),
		fx.Decorate(
			func(p publish.Publisher) publish.Publisher { return wrapper{p, &calls} },
			func(q backend.Queue) backend.Queue {
				return subscribeHook{q, func(s string) { subscribed = append(subscribed, s) }}
			},
			func(c mqfx.Config) mqfx.Config { c.Subscription.BatchSize = 7; return c },
		),
		mqfx.Handle(got, func(out publish.Publisher, served tenants.Set, c mqfx.Config) consume.Handler {
			if served.Len() != 2 || c.Subscription.BatchSize != 7 {
				t.Errorf("tenants %v, batch size %d", served, c.Subscription.BatchSize)
			}
			return consume.Func(consume.Subscription{Topic: "first", Group: "g"}, func(ctx context.Context, d consume.Delivery) error {
				_, err := out.Publish(ctx, d.Tenant, "second", publish.Message{ID: d.ID, PartitionKey: d.PartitionKey})
				return err
			})
		}))
	if _, err := out.Publish(t.Context(), "globex", "first", message("1")); err != nil {
		t.Fatal(err)
	}
	got.expect(t, "1")
	if calls.Load() != 2 || len(subscribed) != 2 {
		t.Errorf("the wrapped publisher saw %d calls, the wrapped queue subscriptions %v", calls.Load(), subscribed)
	}
}

func TestDatabaseDoesNotCollideAndStaysOpen(t *testing.T) {
	dsn := testdb.DSN(t)
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	own, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	app := fxtest.New(t, mqfx.Module, mqfx.WithDB(db), mqfx.WithConfig(mqfx.Config{Migrate: true, Log: quiet}),
		fx.Provide(func() *sql.DB { return own }), fx.Invoke(func(db *sql.DB) {
			if db != own {
				t.Error("the application's own handle was replaced")
			}
		}))
	app.RequireStart().RequireStop()
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the handle handed in was closed: %v", err)
	}
	if err := app.Stop(t.Context()); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if err := refused(t, mqfx.Module, mqfx.WithDB(nil)); !strings.Contains(err.Error(), "mqfx.WithDB: the handle is nil") {
		t.Errorf("error is %v", err)
	}
}

func TestLoggerAndScopeAreOptional(t *testing.T) {
	start(t, inMemory(t)) // neither is there

	core, logs := observer.New(zap.InfoLevel)
	scope := tally.NewTestScope("app", nil)
	got := newCollector("land")
	var out publish.Publisher
	start(t, inMemory(t), fx.Provide(func() *zap.Logger { return zap.New(core) }, func() tally.Scope { return scope }),
		fx.Decorate(func(l *zap.Logger) *zap.Logger { return l.With(zap.String("service", "lander")) }),
		mqfx.Handle(got), fx.Populate(&out))
	mustPublish(t, out, "land", message("1"))
	got.expect(t, "1")
	entries := logs.FilterMessage("queue started").All()
	if len(entries) != 1 || entries[0].LoggerName != "mq" || entries[0].ContextMap()["service"] != "lander" {
		t.Errorf("logged %+v", entries)
	}
	if len(scope.Snapshot().Counters()) == 0 {
		t.Error("nothing was counted")
	}
	for name := range scope.Snapshot().Counters() {
		if !strings.HasPrefix(name, "app.mq.") {
			t.Errorf("counted under %s", name)
		}
	}
}

func TestGraphValidatesAndStarts(t *testing.T) {
	options := fx.Options(inMemory(t), mqfx.Handle(newCollector("land")))
	if err := fx.ValidateApp(options); err != nil {
		t.Error(err)
	}
	start(t, options) // ValidateApp runs no constructor
}

func TestModuleListedTwice(t *testing.T) {
	for _, again := range []fx.Option{mqfx.Module, fx.Module("nested", mqfx.Module)} {
		err := refused(t, inMemory(t), again)
		if !strings.Contains(err.Error(), "mqfx.Module is listed twice; list it once in an application") {
			t.Errorf("error is %v", err)
		}
	}
}
