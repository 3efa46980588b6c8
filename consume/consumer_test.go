package consume_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestHandlerIsGivenTheDelivery(t *testing.T) {
	s := &script{}
	failure := backend.Failure{OriginalTopic: "merge", Group: "lander", Attempts: 10}
	want := backend.Message{
		Tenant: "docs", Topic: "merge_dlq", PartitionKey: "k", ID: "1", Payload: []byte("p"),
		Metadata: map[string]string{"a": "b"}, Offset: 7, PublishedAt: time.UnixMilli(1),
	}
	start(t, s, consume.Params{Handlers: handlers(consume.Func(consume.Subscription{Topic: "merge_dlq", Group: "g"},
		func(ctx context.Context, d consume.Delivery) error {
			if diff := cmp.Diff(want, d.Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if d.Attempt != 3 {
				t.Errorf("got attempt %d", d.Attempt)
			}
			if id, ok := tenants.FromContext(ctx); !ok || id != "docs" {
				t.Errorf("the context carries tenant %q, %v", id, ok)
			}
			if f, ok := d.Failure(); !ok || f != failure {
				t.Errorf("got failure %v, %v", f, ok)
			}
			return nil
		}))})
	d := s.deliver("merge_dlq", want, func(d *delivery) { d.failure = &failure })
	await(t, "an outcome", d.settled)
}

func TestHandlerContextEndsWhenHandleReturns(t *testing.T) {
	s := &script{}
	contexts := make(chan context.Context, 1)
	start(t, s, consume.Params{Handlers: handlers(consume.Func(onMerge, func(ctx context.Context, _ consume.Delivery) error {
		contexts <- ctx
		return ctx.Err()
	}))})
	d := s.deliver("merge", backend.Message{Tenant: "docs"}, func(d *delivery) {
		d.settling = func(context.Context) error {
			<-(<-contexts).Done()
			return nil
		}
	})
	if got := await(t, "an outcome", d.settled); got.verb != "ack" {
		t.Errorf("got %s (cause %v)", got.verb, got.cause)
	}
}

// A handler's own deadline is a failed attempt; the delivery's is not.
func TestOwnTimeoutIsAFailedAttempt(t *testing.T) {
	s := &script{}
	start(t, s, consume.Params{Handlers: handlers(consume.Func(onMerge, func(ctx context.Context, _ consume.Delivery) error {
		ctx, cancel := context.WithTimeout(ctx, time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}))})
	got := await(t, "an outcome", s.deliver("merge", backend.Message{Tenant: "docs"}).settled)
	if got.verb != "nack" || !errors.Is(got.cause, context.DeadlineExceeded) {
		t.Errorf("got %s, cause %v", got.verb, got.cause)
	}
}

// watched counts and records what a runner says of itself.
type watched struct {
	scope tally.TestScope
	logs  *observer.ObservedLogs
	log   *zap.Logger
}

func watch() watched {
	core, logs := observer.New(zapcore.DebugLevel)
	return watched{tally.NewTestScope("", nil), logs, zap.New(core)}
}

// results returns how many deliveries ended in each way.
func (w watched) results() map[string]int64 {
	got := make(map[string]int64)
	for _, c := range w.scope.Snapshot().Counters() {
		if c.Value() > 0 {
			got[c.Name()+" "+c.Tags()["outcome"]+" "+c.Tags()["topic"]+"/"+c.Tags()["consumer_group"]] = c.Value()
		}
	}
	return got
}

// What a handler returns after its delivery has ended is not the message's
// fault, even if it does not wrap the context's error.
func TestInterruptedAttemptIsLeftUnsettled(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"lease lost": {backend.ErrLeaseLost, "consume.deliveries lease_lost merge/lander"},
		"stopped":    {backend.ErrClosed, "consume.deliveries interrupted merge/lander"},
	} {
		for how, result := range map[string]func(context.Context) error{
			"context error": func(ctx context.Context) error { return ctx.Err() },
			"killed command": func(ctx context.Context) error {
				return exec.CommandContext(ctx, "sleep", "60").Run()
			},
			"panic": func(context.Context) error { panic("out of context") },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				s, w := &script{}, watch()
				begun := make(chan struct{})
				r := start(t, s, consume.Params{Logger: w.log, Scope: w.scope, Handlers: handlers(consume.Func(onMerge,
					func(ctx context.Context, _ consume.Delivery) error {
						close(begun)
						<-ctx.Done()
						return result(ctx)
					}))})
				d := s.deliver("merge", backend.Message{Tenant: "docs"})
				await(t, "the handler", begun)
				d.end(c.cause)
				if err := r.Stop(t.Context()); (err != nil) != errors.Is(c.cause, backend.ErrClosed) {
					t.Errorf("Stop: %v", err)
				}
				select {
				case got := <-d.settled:
					t.Errorf("settled: %s, cause %v", got.verb, got.cause)
				default:
				}
				if diff := cmp.Diff(map[string]int64{c.want: 1}, w.results()); diff != "" {
					t.Errorf("counted (-want +got):\n%s", diff)
				}
				if logs := w.logs.All(); len(logs) != 1 || logs[0].ContextMap()["cause"] != c.cause.Error() {
					t.Errorf("logged %v", logs)
				}
			})
		}
	}
}

func TestLeaseLostIsLoggedOnceAndCounted(t *testing.T) {
	s, w := &script{}, watch()
	r := start(t, s, consume.Params{Logger: w.log, Scope: w.scope, Handlers: handlers(
		consume.Func(onMerge, func(context.Context, consume.Delivery) error { return nil }))})
	s.deliver("merge", backend.Message{Tenant: "docs", ID: "1"}, func(d *delivery) {
		d.settling = func(context.Context) error { d.end(backend.ErrLeaseLost); return backend.ErrLeaseLost }
	})
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if diff := cmp.Diff(map[string]int64{"consume.deliveries lease_lost merge/lander": 1}, w.results()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if logs := w.logs.All(); len(logs) != 1 || logs[0].Level != zap.WarnLevel {
		t.Errorf("logged %v, want one warning", logs)
	}
}

// The queue took the delivery back, so to settle it is too late; that the
// handler had finished meanwhile makes it no less cut off.
func TestOutcomeAfterAStopCountsAsInterrupted(t *testing.T) {
	s, w := &script{}, watch()
	r := start(t, s, consume.Params{Scope: w.scope, Handlers: handlers(
		consume.Func(onMerge, func(context.Context, consume.Delivery) error { return nil }))})
	s.deliver("merge", backend.Message{Tenant: "docs"}, func(d *delivery) {
		d.settling = func(context.Context) error { d.end(backend.ErrClosed); return backend.ErrLeaseLost }
	})
	if err := r.Stop(t.Context()); err == nil {
		t.Error("Stop does not count it")
	}
	if diff := cmp.Diff(map[string]int64{"consume.deliveries interrupted merge/lander": 1}, w.results()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestUnwrittenOutcomeNamesTheDelivery(t *testing.T) {
	s, w := &script{}, watch()
	r := start(t, s, consume.Params{Logger: w.log, Scope: w.scope, Handlers: handlers(
		consume.Func(onMerge, func(context.Context, consume.Delivery) error { return consume.Postpone(time.Second) }))})
	s.deliver("merge", backend.Message{Tenant: "docs", PartitionKey: "k", ID: "1", Offset: 7}, func(d *delivery) {
		d.settling = func(context.Context) error { d.end(errDone); return errBroken }
	})
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	want := map[string]any{
		"tenant": "docs", "topic": "merge", "group": "lander", "partition_key": "k", "id": "1",
		"offset": uint64(7), "attempt": int64(3), "outcome": "postpone", "error": errBroken.Error(),
	}
	logs := w.logs.FilterLevelExact(zap.ErrorLevel).All()
	if len(logs) != 1 || w.logs.Len() != 1 {
		t.Fatalf("logged %v, want one error", w.logs.All())
	}
	if diff := cmp.Diff(want, logs[0].ContextMap()); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"consume.deliveries settle_failed merge/lander": 1}, w.results()); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	s, w := &script{}, watch()
	start(t, s, consume.Params{Logger: w.log, Handlers: handlers(
		consume.Func(onMerge, func(context.Context, consume.Delivery) error { panic("lost my mind") }))})
	await(t, "an outcome", s.deliver("merge", backend.Message{Tenant: "docs"}).settled)
	logs := w.logs.FilterLevelExact(zap.ErrorLevel).All()
	if len(logs) != 1 || logs[0].ContextMap()["panic"] != "lost my mind" || logs[0].ContextMap()["panic_stack"] == "" {
		t.Errorf("logged %v", w.logs.All())
	}
}

// Ack returns when it is durable; the queue may hand out the next message of
// the partition before, and its handler must not wait.
func TestNextHandlerStartsWhileAckIsWritten(t *testing.T) {
	s := &script{}
	begun := make(chan string, 2)
	start(t, s, consume.Params{Handlers: handlers(consume.Func(onMerge, func(_ context.Context, d consume.Delivery) error {
		begun <- d.ID
		return nil
	}))})
	durable, writing := make(chan struct{}), make(chan struct{})
	first := s.deliver("merge", backend.Message{Tenant: "docs", ID: "1"}, func(d *delivery) {
		d.settling = func(context.Context) error { close(writing); <-durable; return nil }
	})
	await(t, "the first handler", begun)
	await(t, "its ack", writing)
	second := s.deliver("merge", backend.Message{Tenant: "docs", ID: "2"})
	if id := await(t, "the second handler", begun); id != "2" {
		t.Errorf("got message %s", id)
	}
	await(t, "the second ack", second.settled)
	close(durable)
	await(t, "the first ack", first.settled)
}
