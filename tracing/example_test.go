package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
	"github.com/tenantmq/tenantmq/tracing"
)

// The first attempt is in the trace of the publish, the retry links to it.
func Example() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)
	spans := tracetest.NewSpanRecorder() // a service has an exporter here
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))

	landed := make(chan struct{})
	runner, err := consume.NewRunner(consume.Params{
		Subscriber: q,
		Middleware: []consume.Middleware{tracing.Middleware(provider, nil), consume.Recover()},
		Handlers: []consume.Handler{
			consume.Func(consume.Subscription{
				Topic: "land", Group: "lander", Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond},
			}, func(_ context.Context, d consume.Delivery) error {
				if d.Attempt == 1 {
					return errors.New("no runner is free")
				}
				close(landed)
				return nil
			}),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pub := tracing.Publisher(publish.New(q), provider, nil)
	if _, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "c4", PartitionKey: "main"}); err != nil {
		fmt.Println(err)
		return
	}
	if err := runner.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	<-landed
	if err := runner.Stop(ctx); err != nil {
		fmt.Println(err)
		return
	}

	published := spans.Ended()[0].SpanContext()
	for _, s := range spans.Ended() {
		fmt.Printf("%s: in the trace %v, links %d, %s\n", s.Name(),
			s.SpanContext().TraceID() == published.TraceID(), len(s.Links()), s.Status().Code)
	}
	// Output:
	// publish land: in the trace true, links 0, Unset
	// process land: in the trace true, links 1, Error
	// process land: in the trace false, links 1, Unset
}

// The context of the span travels in the message's metadata.
func ExamplePublisher() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)
	pub := tracing.Publisher(publish.New(q), sdk.NewTracerProvider(), nil)

	if _, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "c4", PartitionKey: "main"}); err != nil {
		fmt.Println(err)
		return
	}
	sub, err := q.Subscribe(ctx, "land", backend.SubscriptionConfig{Group: "lander"})
	if err != nil {
		fmt.Println(err)
		return
	}
	d := <-sub.Deliveries()
	fmt.Println(len(d.Message().Metadata["traceparent"]), "characters of context")
	fmt.Println(d.Ack(ctx))
	// Output:
	// 55 characters of context
	// <nil>
}

// What a handler does is inside of its span.
func ExampleMiddleware() {
	h := tracing.Middleware(sdk.NewTracerProvider(), nil).Wrap(
		consume.Func(consume.Subscription{Topic: "land", Group: "lander"}, func(ctx context.Context, _ consume.Delivery) error {
			span := trace.SpanFromContext(ctx)
			span.AddEvent("checked out")
			fmt.Println(span.IsRecording())
			return nil
		}))
	fmt.Println(h.Handle(context.Background(), consume.Delivery{Message: backend.Message{Tenant: "docs", Topic: "land"}, Attempt: 1}))
	// Output:
	// true
	// <nil>
}
