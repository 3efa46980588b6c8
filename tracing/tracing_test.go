package tracing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/tenants"
	"github.com/tenantmq/tenantmq/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps the spans that have ended.
type recorder struct {
	*sdk.TracerProvider
	ended *tracetest.SpanRecorder
}

func record() recorder {
	ended := tracetest.NewSpanRecorder()
	return recorder{sdk.NewTracerProvider(sdk.WithSpanProcessor(ended)), ended}
}

// one returns the only span of a name.
func (r recorder) one(t *testing.T, name string) sdk.ReadOnlySpan {
	t.Helper()
	var found []sdk.ReadOnlySpan
	for _, s := range r.ended.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q have ended, want one", len(found), name)
	}
	return found[0]
}

// attributes of a span, as text.
func attributes(s sdk.ReadOnlySpan) map[string]string {
	got := make(map[string]string)
	for _, a := range s.Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	return got
}

func links(s sdk.ReadOnlySpan, to trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links(), func(l sdk.Link) bool {
		return l.SpanContext.SpanID() == to.SpanID() && l.SpanContext.TraceID() == to.TraceID()
	})
}

func events(s sdk.ReadOnlySpan) (names []string) {
	for _, e := range s.Events() {
		names = append(names, e.Name)
	}
	return names
}

// value of an attribute, "" if the span has none.
func value(s sdk.ReadOnlySpan, key attribute.Key) string { return attributes(s)[string(key)] }

// openQueue returns a queue of tenant docs that the test closes.
func openQueue(t *testing.T, config memory.Config) *memory.Queue {
	t.Helper()
	set, err := tenants.New("docs")
	if err != nil {
		t.Fatal(err)
	}
	q, err := memory.NewQueue(memory.Params{Tenants: set, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(context.Background()); err != nil {
			t.Errorf("close the queue: %v", err)
		}
	})
	return q
}

// run starts traced handlers on q; the returned function stops them.
func run(t *testing.T, q backend.Queue, r recorder, h ...consume.Handler) (stop func()) {
	t.Helper()
	runner, err := consume.NewRunner(consume.Params{
		Subscriber: q, Handlers: h, Middleware: []consume.Middleware{tracing.Middleware(r, nil)},
		Defaults: backend.SubscriptionConfig{
			Retry: backend.RetryPolicy{MaxAttempts: 2, InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := runner.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

// show draws spans and what they hang on, by the names of trace and span.
func show(spans []sdk.ReadOnlySpan) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s %s: trace %s parent %s links", s.Name(), s.SpanContext().SpanID(), s.SpanContext().TraceID(), s.Parent().SpanID())
		for _, l := range s.Links() {
			fmt.Fprintf(&b, " %s", l.SpanContext.SpanID())
		}
		b.WriteString("\n")
	}
	return b.String()
}
