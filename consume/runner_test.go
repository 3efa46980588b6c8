package consume_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

func nothing(context.Context, consume.Delivery) error { return nil }

func on(topic, group string) consume.Subscription {
	return consume.Subscription{Topic: topic, Group: group}
}

// until waits for its context and says so: a handler that obeys.
func until(begun chan<- struct{}) func(context.Context, consume.Delivery) error {
	return func(ctx context.Context, _ consume.Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
}

func TestStopLetsHandlersFinish(t *testing.T) {
	s := &script{}
	begun, finish := make(chan struct{}), make(chan struct{})
	r := start(t, s, consume.Params{Handlers: handlers(
		consume.Func(on("merge", "g"), func(ctx context.Context, _ consume.Delivery) error {
			close(begun)
			<-finish
			return ctx.Err()
		}),
		consume.Func(on("check", "g"), nothing),
	)})
	d := s.deliver("merge", backend.Message{Tenant: "docs"})
	await(t, "the handler", begun)
	stopped := make(chan error)
	go func() { stopped <- r.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		t.Fatalf("Stop returned %v beside a running handler", err)
	case <-r.Done():
		t.Fatal("Done beside a running handler")
	case <-time.After(10 * time.Millisecond): // enough to see a Stop that does not wait at all
	}
	close(finish)
	if err := await(t, "Stop", stopped); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if got := await(t, "an outcome", d.settled); got.verb != "ack" {
		t.Errorf("got %s, cause %v", got.verb, got.cause)
	}
	await(t, "Done", r.Done())
	if !s.stopped("merge") || !s.stopped("check") {
		t.Error("a subscription was not stopped")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStopCancelsHandlersAtItsDeadlineAndCountsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		begun, release := make(chan struct{}, 10), make(chan struct{})
		r, err := consume.NewRunner(consume.Params{Subscriber: s, Handlers: handlers(
			consume.Func(on("merge", "obeys"), until(begun)),
			consume.Func(on("check", "deaf"), func(context.Context, consume.Delivery) error {
				begun <- struct{}{}
				<-release
				return nil
			}),
		)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		obeying := []*delivery{s.deliver("merge", backend.Message{}), s.deliver("merge", backend.Message{})}
		s.deliver("check", backend.Message{})
		for range 3 {
			<-begun
		}

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		err = r.Stop(ctx)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Stop took %v of 10s", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got error %v, want the deadline's", err)
		}
		for _, says := range []string{"3 deliveries cut off", `topic "merge", group "obeys": 2`, `topic "check", group "deaf": 1`} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("error %q does not say %q", err, says)
			}
		}
		synctest.Wait()
		for _, d := range obeying {
			if len(d.settled) > 0 {
				t.Errorf("cut off and yet settled: %v", <-d.settled)
			}
		}
		select {
		case <-r.Done():
			t.Error("Done while a handler runs")
		default:
		}
		close(release)
		<-r.Done()
	})
}

// An outcome that cannot be written in the time of a stop is cut off like a
// handler.
func TestStopCutsOffAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &script{}, watch()
		r, err := consume.NewRunner(consume.Params{Subscriber: s, Scope: w.scope, Handlers: handlers(consume.Func(onMerge, nothing))})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.deliver("merge", backend.Message{}, func(d *delivery) {
			d.settling = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 deliveries cut off") {
			t.Errorf("got error %v", err)
		}
		<-r.Done()
		if diff := cmp.Diff(map[string]int64{"consume.deliveries interrupted merge/lander": 1}, w.results()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	})
}

// One slow subscription does not spend the time of the others.
func TestStopStopsSubscriptionsAtTheSameTime(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	s := &script{}
	s.stopping = func(ctx context.Context, topic string) error {
		both.Done()
		both.Wait()
		var sub *subscription
		s.topic(topic, func(found *subscription) { sub = found })
		return sub.drain(ctx)
	}
	r := start(t, s, consume.Params{Handlers: handlers(
		consume.Func(on("merge", "g"), nothing), consume.Func(on("check", "g"), nothing),
	)})
	stopped := make(chan error)
	go func() { stopped <- r.Stop(t.Context()) }()
	if err := await(t, "Stop", stopped); err != nil {
		t.Error(err)
	}
	s.stopping = nil
}

func TestStopReportsASubscriptionThatFails(t *testing.T) {
	s := &script{}
	s.stopping = func(ctx context.Context, topic string) error {
		var sub *subscription
		s.topic(topic, func(found *subscription) { sub = found })
		return errors.Join(sub.drain(ctx), errBroken)
	}
	r := start(t, s, consume.Params{Handlers: handlers(consume.Func(on("merge", "g"), nothing))})
	err := r.Stop(t.Context())
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), `topic "merge", group "g"`) {
		t.Errorf("got error %v", err)
	}
}

func TestStopReturnsWhenASubscriptionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		s.stopping = func(ctx context.Context, topic string) error {
			<-release
			var sub *subscription
			s.topic(topic, func(found *subscription) { sub = found })
			return sub.drain(ctx)
		}
		r, err := consume.NewRunner(consume.Params{Subscriber: s, Handlers: handlers(consume.Func(onMerge, nothing))})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
		close(release)
		<-r.Done()
	})
}

// No handler runs unless all are subscribed, and nothing stays behind.
func TestStartThatFailsStopsWhatItStarted(t *testing.T) {
	for name, refuse := range map[string]func(stop func()) error{
		"refused":         func(func()) error { return errBroken },
		"out of time":     func(cancel func()) error { cancel(); return context.Canceled },
		"ended just then": func(cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &script{subscribing: func(_ context.Context, topic string) error {
				if topic == "merge" { // check, the first by name, is subscribed
					return refuse(cancel)
				}
				return nil
			}}
			ran := func(context.Context, consume.Delivery) error { t.Error("a handler ran"); return nil }
			r, err := consume.NewRunner(consume.Params{Subscriber: s, Handlers: handlers(
				consume.Func(on("merge", "g"), ran), consume.Func(on("check", "g"), ran),
			)})
			if err != nil {
				t.Fatal(err)
			}
			waiting := s.deliver("check", backend.Message{})
			waiting.end(errDone) // never handed out, so nothing to wait for
			if err = r.Start(ctx); err == nil {
				t.Fatal("started")
			}
			if name == "refused" && (!errors.Is(err, errBroken) || !strings.Contains(err.Error(), `topic "merge", group "g"`)) {
				t.Errorf("got error %v", err)
			}
			if !s.stopped("check") {
				t.Error("the first subscription goes on")
			}
			if err := r.Stop(t.Context()); err != nil {
				t.Errorf("Stop afterwards: %v", err)
			}
			await(t, "Done", r.Done())
		})
	}
}

func TestStopEndsAStartUnderWay(t *testing.T) {
	subscribing, release := make(chan struct{}), make(chan struct{})
	s := &script{subscribing: func(ctx context.Context, _ string) error {
		close(subscribing)
		<-ctx.Done()
		<-release
		return context.Cause(ctx)
	}}
	r, err := consume.NewRunner(consume.Params{Subscriber: s, Handlers: handlers(consume.Func(onMerge, nothing))})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() { started <- r.Start(context.Background()) }()
	await(t, "Subscribe", subscribing)
	stopped := make(chan error)
	go func() { stopped <- r.Stop(t.Context()) }()
	select {
	case err := <-stopped:
		t.Fatalf("Stop returned %v beside a start", err)
	case <-time.After(10 * time.Millisecond): // enough to see a Stop that does not wait at all
	}
	close(release)
	if err := await(t, "Start", started); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("Start: %v", err)
	}
	if err := await(t, "Stop", stopped); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestRunnerRunsOnce(t *testing.T) {
	r := start(t, &script{}, consume.Params{Handlers: handlers(consume.Func(onMerge, nothing))})
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "make a new one") {
		t.Errorf("second Start: %v", err)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	unstarted, err := consume.NewRunner(consume.Params{Subscriber: &script{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstarted.Stop(t.Context()); err != nil {
		t.Errorf("Stop before Start: %v", err)
	}
	if err := unstarted.Start(t.Context()); err == nil {
		t.Error("started after Stop")
	}
}

func TestSubscriptionThatEndsByItselfIsLogged(t *testing.T) {
	s, logged := &script{}, make(chan string, 1)
	observed, _ := observer.New(zapcore.ErrorLevel)
	log := zap.New(observed, zap.Hooks(func(e zapcore.Entry) error { logged <- e.Message; return nil }))
	r := start(t, s, consume.Params{Logger: log, Handlers: handlers(consume.Func(onMerge, nothing))})
	var sub *subscription
	s.topic("merge", func(found *subscription) { sub = found })
	if err := sub.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if message := await(t, "the log", logged); !strings.Contains(message, "ended without being stopped") {
		t.Errorf("logged %q", message)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

type lander struct{ consume.Handler }

func (*lander) Subscription() consume.Subscription { return onMerge }

func TestNewRunnerNamesEveryMistake(t *testing.T) {
	_, err := consume.NewRunner(consume.Params{
		Subscriber: &script{},
		Handlers: handlers(
			&lander{},
			consume.Func(onMerge, nothing),
			nil,
			consume.Func(on("a", "g"), nil),
			consume.Func(on("", "g"), nothing),
			consume.Func(on("ungrouped", ""), nothing),
			consume.Func(consume.Subscription{Topic: "slow", Group: "g", VisibilityTimeout: 5}, nothing),
			consume.JSON(on(strings.Repeat("x", 253), "g"), func(context.Context, int, consume.Delivery) error { return nil }),
		),
	})
	if !errors.Is(err, backend.ErrInvalid) {
		t.Fatalf("got error %v", err)
	}
	for _, says := range []string{
		"*consume_test.lander and github.com/tenantmq/tenantmq/consume_test.nothing both consume topic \"merge\", group \"lander\"",
		"handler 3 of 8 is nil",
		"handler 4 of 8 is nil",
		"topic: must not be empty",
		`topic "ungrouped", group "": consumer group: must not be empty`,
		"visibility timeout 5ns",
		"consume_test.TestNewRunnerNamesEveryMistake", // the function given to JSON
		"dead letter suffix",
	} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("error does not say %q:\n%v", says, err)
		}
	}
	if _, err := consume.NewRunner(consume.Params{}); err == nil || !strings.Contains(err.Error(), "Subscriber") {
		t.Errorf("without a subscriber: %v", err)
	}
}
