package mqfx_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestHandlersNeedTenants(t *testing.T) {
	dsn, connections := silentServer(t)
	for _, list := range []string{"", " "} {
		t.Setenv(tenants.EnvVar, list)
		err := refused(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn)}), mqfx.Handle(newCollector("land")))
		for _, want := range []string{"MQ_TENANTS", "the handlers have nobody to serve", "set it to those of this process"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error lacks %q: %v", want, err)
			}
		}
	}
	t.Setenv(tenants.EnvVar, "acme,,globex")
	if err := refused(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn)})); !strings.Contains(err.Error(), "MQ_TENANTS: invalid tenant at position 2") {
		t.Errorf("error is %v", err)
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("the database was asked %d times", n)
	}
}

func TestPublishingNeedsNoTenants(t *testing.T) {
	t.Setenv(tenants.EnvVar, "")
	var out publish.Publisher
	served := set(t, "acme")
	start(t, mqfx.Module, mqfx.WithConfig(memoryConfig), fx.Populate(&out, &served))
	mustPublish(t, out, "land", message("1"))
	if served.Len() != 0 {
		t.Errorf("tenants are %v", served)
	}
}

func TestTenantsAreParsedOnce(t *testing.T) {
	t.Setenv(tenants.EnvVar, "acme, globex")
	var served tenants.Set
	got := newCollector("land")
	var out publish.Publisher
	start(t, mqfx.Module, mqfx.WithConfig(memoryConfig), fx.Populate(&served, &out),
		mqfx.Handle(func() *collector {
			t.Setenv(tenants.EnvVar, "acme") // too late for anyone
			return got
		}))
	if served.Check("globex") != nil {
		t.Errorf("the application sees %v", served)
	}
	if _, err := out.Publish(t.Context(), "globex", "land", message("1")); err != nil {
		t.Fatal(err)
	}
	got.expect(t, "1")
}

func TestDuplicateHandlersAreRefused(t *testing.T) {
	same := consume.Func(consume.Subscription{Topic: "land", Group: "collector"}, landTwice)
	err := refused(t, inMemory(t), mqfx.Handle(newCollector("land"), same, newCollector("other")))
	for _, want := range []string{"*mqfx_test.collector", "landTwice", `topic "land"`, `group "collector"`, "another group or drop it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func landTwice(context.Context, consume.Delivery) error { return nil }

func TestHandlersSubscribeInOrder(t *testing.T) {
	in := func(topic, group string) consume.Handler {
		return consume.Func(consume.Subscription{Topic: topic, Group: group}, landTwice)
	}
	for range 10 { // Fx shuffles
		var order []string
		start(t, inMemory(t), mqfx.Handle(in("b", "y"), in("a", "z")), fx.Module("other", mqfx.Handle(in("b", "x"), in("c", "x"))),
			fx.Decorate(func(q backend.Queue) backend.Queue {
				return subscribeHook{q, func(s string) { order = append(order, s) }}
			}))
		if got := strings.Join(order, " "); got != "a/z b/x b/y c/x" {
			t.Fatalf("subscribed in the order %s", got)
		}
	}
}

func TestHandleTakesConstructorsAndHandlers(t *testing.T) {
	asInterface, asType, withError, asValue := newCollector("1"), newCollector("2"), newCollector("3"), newCollector("4")
	var out publish.Publisher
	start(t, inMemory(t), fx.Populate(&out), fx.Supply(asInterface.got), mqfx.Handle(
		func(chan string) consume.Handler { return asInterface },
		func(chan string) *collector { return asType },
		func(chan string) (*collector, error) { return withError, nil },
		asValue,
	))
	for _, c := range []*collector{asInterface, asType, withError, asValue} {
		mustPublish(t, out, c.topic, message(c.topic))
		c.expect(t, c.topic)
	}
}

func TestHandleNeedsTheModule(t *testing.T) {
	for name, option := range map[string]fx.Option{
		"Handle": mqfx.Handle(newCollector("land")), "Middleware": mqfx.Middleware(new(steps).middleware("first", 1)),
	} {
		err := fx.New(fx.NopLogger, option).Err()
		if err == nil || !strings.Contains(err.Error(), "list mqfx.Module in the application") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestHandleRefusesWhatIsNoHandler(t *testing.T) {
	var none func() *collector
	for want, c := range map[string]any{
		"mqfx.Handle(<nil>): want a constructor or what it would return":                                      nil,
		"mqfx.Handle(string): want a constructor or what it would return":                                     "land",
		"mqfx.Handle(func() *mqfx_test.collector): the constructor is nil":                                    none,
		"mqfx.Handle(func() string): the constructor's first result must implement consume.Handler":           func() string { return "" },
		"mqfx.Handle(func()): the constructor's first result":                                                 func() {},
		"mqfx.Handle(func() (*mqfx_test.collector, string)): the constructor may return an error beside that": func() (*collector, string) { return nil, "" },
		"a constructor returned a nil handler of type *mqfx_test.collector":                                   func() *collector { return nil },
		"a constructor returned a nil handler of type <nil>":                                                  func() consume.Handler { return nil },
		"mqfx.Handle(func(*mqfx_test.collector) error): the constructor's first result must implement":        func(*collector) error { return nil },
		"missing type: *mqfx_test.wrapper":                                                                    func(*wrapper) *collector { return nil },
	} {
		if err := refused(t, inMemory(t), mqfx.Handle(c)); !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}
