package mqfx_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

func TestStartContextIsNotKept(t *testing.T) {
	var out publish.Publisher
	got := newCollector("land")
	app := fxtest.New(t, inMemory(t), mqfx.Handle(got), fx.Populate(&out))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	if err := app.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer app.RequireStop()
	cancel()
	mustPublish(t, out, "land", message("1"), message("2"))
	got.expect(t, "1", "2")
}

// silentServer accepts connections and never says a word.
func silentServer(t *testing.T) (dsn string, connections *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int32)
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			open = append(open, conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		for _, conn := range open {
			conn.Close()
		}
	})
	return "mq:secret@tcp(" + listener.Addr().String() + ")/mq", connections
}

func TestStartEndsWithItsContext(t *testing.T) {
	dsn, connections := silentServer(t)
	leaks := goleak.IgnoreCurrent()
	app := fxtest.New(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn)}))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := app.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	goleak.VerifyNone(t, leaks)
	if connections.Load() == 0 {
		t.Error("the server was not asked")
	}
}

// refusing is a queue whose subscriptions to one topic never come about.
type refusing struct {
	backend.Queue
	topic string
}

func (r refusing) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	if topic == r.topic {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r.Queue.Subscribe(ctx, topic, cfg)
}

func TestStartThatTimesOutStopsWhatItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine stays behind
		var out publish.Publisher
		app := fxtest.New(t, inMemory(t), mqfx.Handle(newCollector("a"), newCollector("b")), fx.Populate(&out),
			fx.Decorate(func(q backend.Queue) backend.Queue { return refusing{q, "b"} }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := app.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		synctest.Wait()
		if _, err := out.Publish(t.Context(), "acme", "a", message("1")); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("the queue is still open: error is %v", err)
		}
	})
}

// stubborn handles messages until released, whatever its context says.
type stubborn struct {
	begun   chan struct{}
	release chan struct{}
}

func newStubborn() *stubborn {
	return &stubborn{begun: make(chan struct{}), release: make(chan struct{})}
}

func (s *stubborn) Subscription() consume.Subscription {
	return consume.Subscription{Topic: "land", Group: "lander"}
}

func (s *stubborn) Handle(context.Context, consume.Delivery) error {
	s.begun <- struct{}{}
	<-s.release
	return nil
}

func TestStopLeavesTimeForTheHooksBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStubborn()
		var out publish.Publisher
		left := errors.New("not called")
		app := fxtest.New(t, inMemory(t), fx.Populate(&out),
			mqfx.Handle(func(lc fx.Lifecycle) *stubborn {
				lc.Append(fx.StopHook(func(ctx context.Context) { left = ctx.Err() }))
				return h
			}))
		app.RequireStart()
		mustPublish(t, out, "land", message("1"))
		<-h.begun

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // below the drain timeout
		defer cancel()
		err := app.Stop(ctx)
		if ctx.Err() != nil {
			t.Error("the stop used up the application's time")
		}
		if left != nil {
			t.Errorf("what the handler depends on did not stop in time: %v", left)
		}
		if err == nil || !strings.Contains(err.Error(), `1 deliveries cut off (topic "land", group "lander": 1)`) {
			t.Errorf("error is %v", err)
		}
		close(h.release)
	})
}

func TestStopWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStubborn()
		var out publish.Publisher
		app := fxtest.New(t, inMemory(t), mqfx.Handle(h), fx.Populate(&out))
		app.RequireStart()
		mustPublish(t, out, "land", message("1"))
		<-h.begun

		stopped := make(chan error, 1)
		go func() { stopped <- app.Stop(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-stopped:
			t.Errorf("stopped while a handler runs: %v", err)
		default:
		}
		close(h.release)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainTimeoutApplies(t *testing.T) {
	for name, limit := range map[string]time.Duration{"with a deadline far off": time.Hour, "without a deadline": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStubborn()
				var out publish.Publisher
				app := fxtest.New(t, mqfx.Module, mqfx.WithTenants(set(t, "acme")), mqfx.Handle(h), fx.Populate(&out),
					mqfx.WithConfig(mqfx.Config{Backend: mqfx.BackendMemory, DrainTimeout: 3 * time.Second, Log: quiet}))
				app.RequireStart()
				mustPublish(t, out, "land", message("1"))
				<-h.begun

				ctx := t.Context()
				if limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				err := app.Stop(ctx)
				if err == nil || !strings.Contains(err.Error(), "cut off") || !strings.Contains(err.Error(), "mq.drain_timeout 3s is over") {
					t.Errorf("error is %v", err)
				}
				close(h.release)
			})
		})
	}
}

func TestCutOffHandlersReturnBeforeWhatTheyUseStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		var returned, early atomic.Bool
		var out publish.Publisher
		app := fxtest.New(t, inMemory(t), fx.Populate(&out),
			mqfx.Handle(func(lc fx.Lifecycle) consume.Handler {
				lc.Append(fx.StopHook(func() { early.Store(!returned.Load()) }))
				return consume.Func(consume.Subscription{Topic: "land", Group: "lander"}, func(ctx context.Context, _ consume.Delivery) error {
					close(begun)
					<-ctx.Done()
					time.Sleep(100 * time.Millisecond) // cleaning up
					returned.Store(true)
					return ctx.Err()
				})
			}))
		app.RequireStart()
		mustPublish(t, out, "land", message("1"))
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := app.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 deliveries cut off") {
			t.Errorf("error is %v", err)
		}
		if early.Load() {
			t.Error("what the handler uses was stopped under it")
		}
	})
}

func TestFailedConstructionLeavesNothing(t *testing.T) {
	dsn, connections := silentServer(t)
	err := refused(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn), Migrate: true}), mqfx.WithTenants(set(t, "acme")),
		mqfx.Handle(func(publish.Publisher, backend.Queue) (*collector, error) { return nil, errors.New("no such store") }))
	if !strings.Contains(err.Error(), "no such store") {
		t.Errorf("error is %v", err)
	}
	if n := connections.Load(); n > 0 {
		t.Errorf("%d connections were opened by constructors", n)
	}
}

func TestQueueIsUsedFromTheStartOn(t *testing.T) {
	var tooEarly, inHook error
	var q backend.Queue
	start(t, inMemory(t), fx.Populate(&q), fx.Invoke(func(lc fx.Lifecycle, out publish.Publisher) {
		publishOne := func(ctx context.Context) error {
			_, err := out.Publish(ctx, "acme", "land", message("1"))
			return err
		}
		tooEarly = publishOne(t.Context())
		lc.Append(fx.StartHook(func(ctx context.Context) { inHook = publishOne(ctx) }))
	}))
	if !errors.Is(tooEarly, mqfx.ErrNotStarted) {
		t.Errorf("in a constructor: error is %v", tooEarly)
	}
	if inHook != nil {
		t.Errorf("in a hook: error is %v", inHook)
	}
	if _, ok := q.(backend.Admin); !ok {
		t.Error("the queue has lost its backend.Admin")
	}
}
