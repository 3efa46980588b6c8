package tracing

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenantmq/tenantmq/consume"
)

// sameTrace is how long after its publish a message is still handled in the
// trace of it.
const sameTrace = time.Hour

// Middleware makes a span of every attempt, around everything of a greater
// priority than [consume.PriorityTracing]. The package documentation tells what
// nil arguments mean, and how spans hang together.
//
// An attempt that was acknowledged, postponed or interrupted by a stop is no
// error; every other outcome is.
func Middleware(tp trace.TracerProvider, propagator propagation.TextMapPropagator) consume.Middleware {
	t := newTracer(tp, propagator)
	return consume.Middleware{Name: "tracing", Priority: consume.PriorityTracing, Wrap: func(next consume.Handler) consume.Handler {
		group := next.Subscription().Group
		return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
			ctx, span := t.startAttempt(ctx, group, d)
			defer span.End()
			err := errUnwound
			defer func() { endAttempt(span, d, err) }()
			err = next.Handle(ctx, d)
			return err
		})
	}}
}

// errUnwound stands for the result of a handler that did not return.
var errUnwound = errors.New("handler panicked or ended its goroutine")

func (t tracer) startAttempt(ctx context.Context, group string, d consume.Delivery) (context.Context, trace.Span) {
	const operation = "process"
	attributes := append(common(operation, d.Tenant, d.Topic),
		semconv.MessagingOperationTypeProcess, semconv.MessagingConsumerGroupName(group),
		semconv.MessagingDestinationPartitionID(d.PartitionKey), semconv.MessagingMessageID(d.ID),
		semconv.MessagingMessageBodySize(len(d.Payload)), attemptKey.Int(d.Attempt))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}

	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(d.Metadata))
	if origin := trace.SpanContextFromContext(ctx); origin.IsValid() && origin.IsRemote() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: origin}))
		if d.Attempt > 1 || time.Since(tracedAt(d)) > sameTrace {
			options = append(options, trace.WithNewRoot())
		}
	}
	return t.Start(ctx, operation+" "+d.Topic, options...)
}

// tracedAt is when the publishing span began.
func tracedAt(d consume.Delivery) time.Time {
	if ms, err := strconv.ParseInt(d.Metadata[tracedAtKey], 10, 64); err == nil {
		return time.UnixMilli(ms)
	}
	return d.PublishedAt // its context was injected by someone else
}

func endAttempt(span trace.Span, d consume.Delivery, err error) {
	outcome := d.Outcome(err)
	span.SetAttributes(outcomeKey.String(outcome))
	switch outcome {
	case "ack", "postpone", "interrupted":
	default:
		if err == nil {
			err = consume.ErrHandlerTimeout // all else that fails has an error
		}
		fail(span, err)
	}
}
