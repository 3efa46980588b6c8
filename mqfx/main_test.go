package mqfx_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// patience is for what has to happen; a test that waits longer has failed.
const patience = 20 * time.Second

var (
	quiet        = mqfx.Log{Level: "error"}
	memoryConfig = mqfx.Config{Backend: mqfx.BackendMemory, Log: quiet}
)

// inMemory is the module of an application that serves tenant acme in memory.
func inMemory(t testing.TB) fx.Option {
	return fx.Options(mqfx.Module, mqfx.WithConfig(memoryConfig), mqfx.WithTenants(set(t, "acme")))
}

func set(t testing.TB, ids ...tenants.ID) tenants.Set {
	t.Helper()
	s, err := tenants.New(ids...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts an application and stops it when the test ends.
func start(t testing.TB, opts ...fx.Option) {
	t.Helper()
	app := fxtest.New(t, opts...)
	app.RequireStart()
	t.Cleanup(app.RequireStop)
}

// refused returns the error of an application that does not start, and checks
// that it left nothing running.
func refused(t testing.TB, opts ...fx.Option) error {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	app := fx.New(append(opts, fxtest.WithTestLogger(t))...)
	err := app.Err()
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err = app.Start(ctx)
		if err == nil {
			if err := app.Stop(ctx); err != nil {
				t.Error(err)
			}
			t.Fatal("the application started")
		}
	}
	goleak.VerifyNone(t, leaks)
	return err
}

// message is one of tenant acme, partition key "key".
func message(id string) publish.Message {
	return publish.Message{ID: id, PartitionKey: "key", Payload: []byte(id)}
}

func mustPublish(t testing.TB, p publish.Publisher, topic string, msgs ...publish.Message) {
	t.Helper()
	if _, err := p.Publish(t.Context(), "acme", topic, msgs...); err != nil {
		t.Fatal(err)
	}
}

// collector is a handler that passes on what it gets.
type collector struct {
	topic string
	got   chan string
}

func newCollector(topic string) *collector {
	return &collector{topic: topic, got: make(chan string, 100)}
}

func (c *collector) Subscription() consume.Subscription {
	return consume.Subscription{Topic: c.topic, Group: "collector"}
}

func (c *collector) Handle(ctx context.Context, d consume.Delivery) error {
	select {
	case c.got <- d.ID:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *collector) expect(t testing.TB, ids ...string) {
	t.Helper()
	for _, want := range ids {
		if got := receive(t, c.got); got != want {
			t.Errorf("got message %q, want %q", got, want)
		}
	}
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came within %v", patience)
		panic("unreachable")
	}
}
