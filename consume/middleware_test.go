package consume_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

// around returns a middleware that notes when it is entered and left.
func around(name string, priority int, note func(string)) consume.Middleware {
	return consume.Middleware{Name: name, Priority: priority, Wrap: func(next consume.Handler) consume.Handler {
		return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
			note("+" + name)
			defer note("-" + name)
			return next.Handle(ctx, d)
		})
	}}
}

// The smallest priority is outermost, then the first by name, around every
// handler, however they are listed.
func TestMiddlewareIsOrderedByPriorityAndName(t *testing.T) {
	s := &script{}
	var order []string
	note := func(what string) { order = append(order, what) }
	given := []consume.Middleware{around("b", 7, note), around("z", -1, note), around("c", 100, note), around("a", 7, note)}
	before := slices.Clone(given)
	handle := func(_ context.Context, d consume.Delivery) error { note(d.Topic); return nil }
	start(t, s, consume.Params{Middleware: given, Handlers: handlers(consume.Func(onMerge, handle), consume.Func(on("check", "g"), handle))})
	for _, topic := range []string{"merge", "check"} {
		order = nil
		await(t, "an outcome", s.deliver(topic, backend.Message{}).settled)
		if got, want := strings.Join(order, " "), "+z +a +b +c "+topic+" -c -b -a -z"; got != want {
			t.Errorf("ran %s, want %s", got, want)
		}
	}
	for i := range given {
		if given[i].Name != before[i].Name {
			t.Errorf("the caller's slice became %v", given)
			break
		}
	}
}

// elsewhere is a wrapped handler that claims another subscription.
type elsewhere struct{ consume.Handler }

func (elsewhere) Subscription() consume.Subscription {
	return consume.Subscription{Topic: "elsewhere", Group: "others", HandlerTimeout: time.Hour}
}

// A wrapped handler keeps the subscription of the one it wraps, and every
// middleware sees it complete.
func TestMiddlewareKeepsTheSubscription(t *testing.T) {
	q := &script{}
	var seen []consume.Subscription
	look := func(next consume.Handler) consume.Handler {
		seen = append(seen, next.Subscription())
		return elsewhere{next}
	}
	start(t, q, consume.Params{
		Handlers: handlers(consume.Func(consume.Subscription{Topic: "merge", BatchSize: 3}, nothing)),
		Defaults: backend.SubscriptionConfig{Group: "lander"}, HandlerTimeout: time.Minute,
		Middleware: []consume.Middleware{{Name: "inner", Priority: 2, Wrap: look}, {Name: "outer", Priority: 1, Wrap: look}},
	})
	want := consume.Subscription{Topic: "merge", Group: "lander", BatchSize: 3, HandlerTimeout: time.Minute}
	if diff := cmp.Diff([]consume.Subscription{want, want}, seen); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	q.topic("merge", func(sub *subscription) {
		if sub.config.Group != "lander" || sub.config.BatchSize != 3 {
			t.Errorf("subscribed %+v", sub.config)
		}
	})
	if len(q.subs) != 1 {
		t.Errorf("subscribed %d topics", len(q.subs))
	}
}

func TestErrorsNameTheHandlerInsideOfMiddleware(t *testing.T) {
	s := &script{subscribing: func(context.Context, string) error { return errBroken }}
	wrapped := consume.Wrap(consume.Func(onMerge, nothing), nothing)
	r, err := consume.NewRunner(consume.Params{
		Subscriber: s, Handlers: handlers(wrapped),
		Middleware: []consume.Middleware{{Name: "m", Wrap: func(next consume.Handler) consume.Handler { return elsewhere{next} }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `handler github.com/tenantmq/tenantmq/consume_test.nothing, topic "merge"`) {
		t.Errorf("got error %v", err)
	}
}

func TestNewRunnerNamesFaultyMiddleware(t *testing.T) {
	same := func(h consume.Handler) consume.Handler { return h }
	for _, c := range []struct {
		name  string
		given []consume.Middleware
		says  string
	}{
		{"no name", []consume.Middleware{{Name: "a", Wrap: same}, {Wrap: same}}, "middleware 2 of 2 has no name"},
		{"twice", []consume.Middleware{{Name: "a", Wrap: same}, {Name: "a", Priority: 3, Wrap: same}}, `middleware "a" is given twice`},
		{"supplied twice", []consume.Middleware{consume.Timeout(1e9), consume.Timeout(2e9)}, `middleware "timeout" is given twice`},
		{"nil Wrap", []consume.Middleware{{Name: "a"}}, `middleware "a", 1 of 1, has a nil Wrap`},
		{"wraps into nil", []consume.Middleware{{Name: "a", Wrap: func(consume.Handler) consume.Handler { return nil }}}, `middleware "a": Wrap returned a nil handler`},
		{"wraps a nil function", []consume.Middleware{{Name: "a", Wrap: func(h consume.Handler) consume.Handler { return consume.Wrap(h, nil) }}}, `middleware "a": Wrap returned a nil handler`},
	} {
		_, err := consume.NewRunner(consume.Params{
			Subscriber: &script{}, Handlers: handlers(consume.Func(onMerge, nothing)), Middleware: c.given,
		})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v", c.name, err)
		}
	}
	if _, err := consume.NewRunner(consume.Params{Subscriber: &script{}, Handlers: handlers(consume.Wrap(nil, nothing))}); err == nil ||
		!strings.Contains(err.Error(), "handler 1 of 1 is nil") {
		t.Errorf("wrapping no handler: got error %v", err)
	}
}

// What is outside of Recover sees an error where the handler panicked, with the
// stack of the handler.
func TestRecoverTurnsAPanicIntoAnError(t *testing.T) {
	s := &script{}
	seen := make(chan error, 1)
	look := consume.Middleware{Name: "look", Wrap: func(next consume.Handler) consume.Handler {
		return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
			err := next.Handle(ctx, d)
			seen <- err
			return err
		})
	}}
	start(t, s, consume.Params{
		Middleware: []consume.Middleware{look, consume.Recover()},
		Handlers:   handlers(consume.Func(onMerge, func(context.Context, consume.Delivery) error { deepInTheHandler(nil); return nil })),
	})
	d := s.deliver("merge", backend.Message{Tenant: "docs"})
	p, ok := errors.AsType[*consume.PanicError](await(t, "what is seen outside", seen))
	if !ok {
		t.Fatal("it is no PanicError")
	}
	first, _, _ := strings.Cut(p.Stack, "\n")
	if !strings.HasSuffix(first, ".deepInTheHandler") || !strings.Contains(p.Stack, "middleware_test.go:") {
		t.Errorf("the stack starts at %s:\n%s", first, p.Stack)
	}
	for _, foreign := range []string{"runtime.", "recovered", "wrapper", "(*consumer)"} {
		if strings.Contains(p.Stack, foreign) {
			t.Errorf("the stack shows %s:\n%s", foreign, p.Stack)
		}
	}
	if got := await(t, "an outcome", d.settled); got.verb != "nack" {
		t.Errorf("got %s", got.verb)
	}
}

// Each way for an attempt to end, and what observers say of it.
var endings = []struct {
	name    string
	handle  func(context.Context) error
	end     error // of the delivery, before the handler returns
	outcome string
}{
	{"ack", func(context.Context) error { return nil }, nil, "ack"},
	{"nack", func(context.Context) error { return errBroken }, nil, "nack"},
	{"postpone", func(context.Context) error { return consume.Postpone(time.Second) }, nil, "postpone"},
	{"invalid postpone", func(context.Context) error { return consume.Postpone(0) }, nil, "nack"},
	{"reject", func(context.Context) error { return consume.Reject(errBroken) }, nil, "reject"},
	{"panic", func(context.Context) error { panic("lost my mind") }, nil, "nack"},
	{"Goexit", func(context.Context) error { runtime.Goexit(); return nil }, nil, "nack"},
	{"lease lost", func(ctx context.Context) error { return ctx.Err() }, backend.ErrLeaseLost, "lease_lost"},
	{"stopped", func(ctx context.Context) error { return ctx.Err() }, backend.ErrClosed, "interrupted"},
}

// observed runs the handler of each ending, for 3 s, inside of a middleware.
func observed(t *testing.T, m func() consume.Middleware, check func(t *testing.T, outcome string)) {
	for _, c := range endings {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{}
				var d *delivery
				r := start(t, s, consume.Params{Middleware: []consume.Middleware{m()}, Handlers: handlers(consume.Func(onMerge,
					func(ctx context.Context, _ consume.Delivery) error {
						time.Sleep(3 * time.Second)
						if c.end != nil {
							d.end(c.end)
							<-ctx.Done()
						}
						return c.handle(ctx)
					}))})
				s.deliver("merge", backend.Message{Tenant: "docs", PartitionKey: "k", ID: "1", Offset: 7}, func(given *delivery) { d = given })
				_ = r.Stop(t.Context())
				check(t, c.outcome)
			})
		})
	}
}

func TestLoggingTellsOfEveryAttempt(t *testing.T) {
	for slow, level := range map[time.Duration]zap.AtomicLevel{
		0: zap.NewAtomicLevelAt(zap.DebugLevel), 3 * time.Second: zap.NewAtomicLevelAt(zap.DebugLevel),
		3*time.Second - 1: zap.NewAtomicLevelAt(zap.WarnLevel),
	} {
		t.Run(fmt.Sprint("slow=", slow), func(t *testing.T) {
			var w watched
			observed(t, func() consume.Middleware { w = watch(); return consume.Logging(w.log, slow) }, func(t *testing.T, outcome string) {
				logs := w.logs.All()
				if len(logs) != 1 || logs[0].Level != level.Level() {
					t.Fatalf("logged %v", logs)
				}
				got := logs[0].ContextMap()
				if outcome != "ack" && got["error"] == nil {
					t.Error("logged no error")
				}
				delete(got, "error")
				delete(got, "errorVerbose")
				want := map[string]any{
					"tenant": "docs", "topic": "merge", "group": "lander", "partition_key": "k", "id": "1",
					"offset": uint64(7), "attempt": int64(3), "outcome": outcome, "duration": 3 * time.Second,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("logged (-want +got):\n%s", diff)
				}
			})
		})
	}
	if consume.Logging(nil, 0).Wrap(consume.Func(onMerge, nothing)).Handle(t.Context(), consume.Delivery{}) != nil {
		t.Error("a nil logger spoils the handler")
	}
}

func TestMetricsTimeEveryAttemptByOutcome(t *testing.T) {
	var w watched
	observed(t, func() consume.Middleware { w = watch(); return consume.Metrics(w.scope) }, func(t *testing.T, outcome string) {
		got := make(map[string]int64)
		for _, h := range w.scope.Snapshot().Histograms() {
			for bucket, n := range h.Durations() {
				if n > 0 {
					got[fmt.Sprint(h.Name(), " ", h.Tags(), " up to ", bucket)] += n
				}
			}
		}
		want := map[string]int64{
			fmt.Sprint("consume.handler_time map[consumer_group:lander outcome:", outcome, " topic:merge] up to 4.096s"): 1,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
	if consume.Metrics(nil).Wrap(consume.Func(onMerge, nothing)).Handle(t.Context(), consume.Delivery{}) != nil {
		t.Error("a nil scope spoils the handler")
	}
}

// The supplied ones work together, in their documented order.
func TestSuppliedMiddlewareTogether(t *testing.T) {
	s, w := &script{}, watch()
	start(t, s, consume.Params{
		Middleware: []consume.Middleware{
			consume.Recover(), consume.Timeout(time.Hour), consume.Logging(w.log, 0), consume.Metrics(w.scope),
			{Name: "just inside of logging", Priority: consume.PriorityLogging + 1, Wrap: func(next consume.Handler) consume.Handler {
				return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
					err := next.Handle(ctx, d)
					if _, ok := errors.AsType[*consume.PanicError](err); !ok {
						t.Errorf("got error %v", err)
					}
					if w.logs.Len() > 0 {
						t.Errorf("logged before: %v", w.logs.All())
					}
					return err
				})
			}},
		},
		Handlers: handlers(consume.Func(onMerge, func(ctx context.Context, _ consume.Delivery) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the context has no deadline")
			}
			panic("lost my mind")
		})),
	})
	if got := await(t, "an outcome", s.deliver("merge", backend.Message{}).settled); got.verb != "nack" {
		t.Errorf("got %s", got.verb)
	}
	if logs := w.logs.All(); len(logs) != 1 || !strings.Contains(fmt.Sprint(logs[0].ContextMap()["error"]), "lost my mind") {
		t.Errorf("logged %v", logs)
	}
}

func TestOutcomeOfADeliveryMadeByHand(t *testing.T) {
	for want, err := range map[string]error{
		"ack": nil, "nack": errBroken, "postpone": consume.Postpone(time.Second), "reject": fmt.Errorf("c4: %w", consume.Reject(nil)),
	} {
		if got := (consume.Delivery{}).Outcome(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}
