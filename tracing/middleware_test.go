package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tracing"
)

var errBroken = errors.New("build is broken")

func on(topic string) consume.Subscription {
	return consume.Subscription{Topic: topic, Group: "lander"}
}

// attempt calls a traced handler by hand and returns what it was given.
func attempt(t *testing.T, r recorder, d consume.Delivery, handle func(context.Context, consume.Delivery) error) (ctx context.Context) {
	t.Helper()
	d.Topic = "land"
	h := tracing.Middleware(r, nil).Wrap(consume.Func(on("land"), func(given context.Context, d consume.Delivery) error {
		ctx = given
		return handle(given, d)
	}))
	var done sync.WaitGroup
	done.Go(func() { // for Goexit
		defer func() { _ = recover() }()
		_ = h.Handle(context.Background(), d)
	})
	done.Wait()
	return ctx
}

func TestAttemptSpan(t *testing.T) {
	for _, c := range []struct {
		name    string
		result  func() error
		outcome string
		failure string // error.type
		says    string
	}{
		{"ack", func() error { return nil }, "ack", "", ""},
		{"nack", func() error { return fmt.Errorf("c4: %w", errBroken) }, "nack", "*errors.errorString", "c4: build is broken"},
		{"postpone", func() error { return consume.Postpone(time.Second) }, "postpone", "", ""},
		{"reject", func() error { return consume.Reject(errBroken) }, "reject", "*consume.RejectError", "build is broken"},
		{"panic recovered", func() error { return &consume.PanicError{Value: "x", Stack: "main.main\n"} }, "nack", "*consume.PanicError", "panic: x"},
		{"panic", func() error { panic("lost my mind") }, "nack", "*errors.errorString", "handler panicked or ended its goroutine"},
		{"Goexit", func() error { runtime.Goexit(); return nil }, "nack", "*errors.errorString", "handler panicked or ended its goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record()
			ctx := attempt(t, r, consume.Delivery{
				Message: backend.Message{Tenant: "docs", PartitionKey: "k", ID: "1", Payload: []byte("four")}, Attempt: 3,
			}, func(context.Context, consume.Delivery) error { return c.result() })
			span := r.one(t, "process land")
			if trace.SpanContextFromContext(ctx).SpanID() != span.SpanContext().SpanID() {
				t.Error("the handler's context carries another span")
			}
			if span.SpanKind() != trace.SpanKindConsumer || len(span.Links()) > 0 || span.Parent().IsValid() {
				t.Errorf("got kind %v, links %v, parent %v", span.SpanKind(), span.Links(), span.Parent())
			}
			want := map[string]string{
				"messaging.system": "tenantmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "land", "messaging.destination.partition.id": "k", "messaging.consumer.group.name": "lander",
				"messaging.message.id": "1", "messaging.message.body.size": "4",
				"tenantmq.tenant": "docs", "tenantmq.attempt": "3", "tenantmq.outcome": c.outcome,
			}
			status := codes.Unset
			if c.failure != "" {
				want["error.type"], status = c.failure, codes.Error
			}
			if diff := cmp.Diff(want, attributes(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if s := span.Status(); s.Code != status || s.Description != c.says {
				t.Errorf("got status %v", s)
			}
			if recorded := len(events(span)) > 0; recorded != (c.failure != "") {
				t.Errorf("got events %v", events(span))
			}
		})
	}
}

const (
	traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	spanID      = "b7ad6b7169203331"
)

// The first attempt soon after the publish is a child, every other one is
// linked alone.
func TestAttemptsBelongToThePublishingSpan(t *testing.T) {
	for _, c := range []struct {
		name    string
		attempt int
		stored  time.Duration // ago
		traced  time.Duration // ago; 0 for the context of somebody else
		child   bool
	}{
		{"first", 1, time.Second, time.Second, true},
		{"retry", 2, time.Second, time.Second, false},
		{"first within the hour", 1, 59 * time.Minute, 59 * time.Minute, true},
		{"first after days", 1, 48 * time.Hour, 48 * time.Hour, false},
		{"first after a redrive", 1, time.Second, 48 * time.Hour, false},
		{"first of somebody else's", 1, time.Second, 0, true},
		{"first of somebody else's after days", 1, 48 * time.Hour, 0, false},
	} {
		metadata := map[string]string{"traceparent": traceparent, "baggage": "customer=7"}
		if c.traced > 0 {
			metadata["traced_at"] = fmt.Sprint(time.Now().Add(-c.traced).UnixMilli())
		}
		r := record()
		ctx := attempt(t, r, consume.Delivery{Attempt: c.attempt, Message: backend.Message{
			PublishedAt: time.Now().Add(-c.stored), Metadata: metadata,
		}}, func(context.Context, consume.Delivery) error { return nil })
		span := r.one(t, "process land")
		if child := span.SpanContext().TraceID().String() == traceID && span.Parent().SpanID().String() == spanID; child != c.child {
			t.Errorf("%s: trace %v, parent %v", c.name, span.SpanContext().TraceID(), span.Parent())
		}
		if !c.child && span.Parent().IsValid() {
			t.Errorf("%s: got parent %v", c.name, span.Parent())
		}
		if l := span.Links(); len(l) != 1 || l[0].SpanContext.SpanID().String() != spanID {
			t.Errorf("%s: linked to %v", c.name, l)
		}
		if got := baggage.FromContext(ctx).Member("customer").Value(); got != "7" {
			t.Errorf("%s: got baggage %q", c.name, got)
		}
	}
}

func TestBadTraceContextIsIgnored(t *testing.T) {
	for _, metadata := range []map[string]string{
		nil,
		{},
		{"traceparent": ""},
		{"traceparent": "garbage"},
		{"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
		{"traceparent": traceparent + "x", "baggage": "%%%"},
	} {
		r := record()
		handled := false
		attempt(t, r, consume.Delivery{Attempt: 1, Message: backend.Message{Metadata: metadata}}, func(context.Context, consume.Delivery) error {
			handled = true
			return nil
		})
		span := r.one(t, "process land")
		if !handled || len(span.Links()) > 0 || span.Parent().IsValid() || !span.SpanContext().IsValid() {
			t.Errorf("%v: handled %v, links %v, parent %v", metadata, handled, span.Links(), span.Parent())
		}
	}
}

// The context travels with a message wherever it goes: all attempts are found
// from the publishing span.
func TestTraceSurvivesDeadLetterAndRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := record(), openQueue(t, memory.Config{})
		pub := tracing.Publisher(publish.New(q), r, nil)
		broken := true
		dead, done := make(chan backend.Message, 1), make(chan struct{})
		stop := run(t, q, r, consume.Func(on("land"), func(ctx context.Context, d consume.Delivery) error {
			if broken {
				return errBroken
			}
			_, err := pub.Publish(ctx, d.Tenant, "landed", publish.Message{ID: d.ID, PartitionKey: d.PartitionKey, Metadata: d.Metadata})
			close(done)
			return err
		}))
		ctx, request := r.Tracer("test").Start(t.Context(), "request")
		if _, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "1", PartitionKey: "k"}); err != nil {
			t.Fatal(err)
		}
		request.End()
		stopMourner := run(t, q, r, consume.Func(on("land_dlq"), func(_ context.Context, d consume.Delivery) error {
			select {
			case dead <- d.Message:
			default:
			}
			return consume.Postpone(30 * 24 * time.Hour) // it stays, to be redriven
		}))
		letter := <-dead
		time.Sleep(2 * time.Hour)
		stopMourner()
		broken = false
		if err := q.Redrive(t.Context(), "docs", "land_dlq", letter.PartitionKey, letter.ID); err != nil {
			t.Fatal(err)
		}
		<-done
		stop()

		spans := r.ended.Ended()
		published := r.one(t, "publish land")
		if published.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Error("the publishing span is no child of the request's")
		}
		names := make(map[string]int)
		for _, s := range spans {
			names[s.Name()]++
			if s.Name() != "process land" && s.Name() != "process land_dlq" {
				continue
			}
			if !links(s, published.SpanContext()) {
				t.Errorf("%s, attempt %s, is not linked to the publish", s.Name(), value(s, "tenantmq.attempt"))
			}
			if within := s.SpanContext().TraceID() == published.SpanContext().TraceID(); within && s.StartTime().Sub(published.StartTime()) > time.Hour {
				t.Errorf("%s extends the trace for hours", s.Name())
			}
			if value(s, "tenantmq.outcome") == "ack" {
				onwards := r.one(t, "publish landed")
				if onwards.Parent().SpanID() != s.SpanContext().SpanID() || !links(onwards, published.SpanContext()) {
					t.Error("what the handler publishes does not continue its trace")
				}
			}
		}
		want := map[string]int{"request": 1, "publish land": 1, "process land": 3, "process land_dlq": 1, "publish landed": 1}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
		if t.Failed() {
			t.Log("\n" + show(spans))
		}
	})
}

// A result after the handler's time fails the attempt even if it is nil.
func TestAttemptThatTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := record(), openQueue(t, memory.Config{})
		first := true
		s := on("land")
		s.HandlerTimeout = time.Second
		stop := run(t, q, r, consume.Func(s, func(ctx context.Context, _ consume.Delivery) error {
			if first {
				first = false
				<-ctx.Done()
			}
			return nil
		}))
		if _, err := publish.New(q).Publish(t.Context(), "docs", "land", publish.Message{ID: "1", PartitionKey: "k"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		spans := r.ended.Ended()
		if len(spans) != 2 {
			t.Fatalf("%d attempts", len(spans))
		}
		if s := spans[0]; value(s, "tenantmq.outcome") != "nack" || s.Status().Code != codes.Error || s.Status().Description != consume.ErrHandlerTimeout.Error() {
			t.Errorf("got outcome %s, status %v", value(s, "tenantmq.outcome"), s.Status())
		}
	})
}

// An attempt that a stop cuts off has not failed.
func TestInterruptedAttemptIsNoError(t *testing.T) {
	r, q := record(), openQueue(t, memory.Config{})
	begun := make(chan struct{})
	runner, err := consume.NewRunner(consume.Params{
		Subscriber: q, Middleware: []consume.Middleware{tracing.Middleware(r, nil)},
		Handlers: []consume.Handler{consume.Func(on("land"), func(ctx context.Context, _ consume.Delivery) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := publish.New(q).Publish(t.Context(), "docs", "land", publish.Message{ID: "1", PartitionKey: "k"}); err != nil {
		t.Fatal(err)
	}
	<-begun
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runner.Stop(over); err == nil {
		t.Error("nothing was cut off")
	}
	<-runner.Done()
	if s := r.one(t, "process land"); value(s, "tenantmq.outcome") != "interrupted" || s.Status().Code != codes.Unset || len(s.Events()) > 0 {
		t.Errorf("got outcome %s, status %v, events %v", value(s, "tenantmq.outcome"), s.Status(), events(s))
	}
}

// A nil provider is the global one, which records nothing unless it is set.
func TestNilProviderIsTheGlobalOne(t *testing.T) {
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)
	for _, recording := range []bool{true, false} {
		r := record()
		otel.SetTracerProvider(noop.NewTracerProvider())
		if recording {
			otel.SetTracerProvider(r)
		}
		h := tracing.Middleware(nil, nil).Wrap(consume.Func(on("land"), func(context.Context, consume.Delivery) error { return nil }))
		if err := h.Handle(t.Context(), consume.Delivery{}); err != nil {
			t.Fatal(err)
		}
		next := &store{}
		if _, err := tracing.Publisher(next, nil, nil).Publish(t.Context(), "docs", "land", publish.Message{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if n := len(r.ended.Ended()); (n == 2) != recording {
			t.Errorf("recording %v: %d spans", recording, n)
		}
		if carries := next.calls[0][0].Metadata["traceparent"] != ""; carries != recording {
			t.Errorf("recording %v: published with %v", recording, next.calls[0][0].Metadata)
		}
	}
}
