package tracing

import (
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenantmq/tenantmq/tenants"
)

// scopeName is what spans name as their instrumentation.
const scopeName = "github.com/tenantmq/tenantmq/tracing"

// Attributes that the semantic conventions do not have.
const (
	tenantKey     = attribute.Key("tenantmq.tenant")
	duplicatesKey = attribute.Key("tenantmq.duplicates")
	attemptKey    = attribute.Key("tenantmq.attempt")
	outcomeKey    = attribute.Key("tenantmq.outcome")
)

// tracer is what both sides have.
type tracer struct {
	trace.Tracer
	propagator propagation.TextMapPropagator
}

func newTracer(tp trace.TracerProvider, propagator propagation.TextMapPropagator) tracer {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if propagator == nil {
		propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	return tracer{tp.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL)), propagator}
}

// common returns the attributes of both sides. operation is how a span's name
// begins, too.
func common(operation string, tenant tenants.ID, topic string) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("tenantmq"), semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(topic), tenantKey.String(string(tenant)),
	}
}

func fail(span trace.Span, err error) {
	span.RecordError(err)
	span.SetAttributes(semconv.ErrorType(err))
	first, _, _ := strings.Cut(err.Error(), "\n") // a panic's goes on with its stack
	span.SetStatus(codes.Error, first)
}
