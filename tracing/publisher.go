package tracing

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Publisher returns a publisher that makes a span of every publish through next
// and puts its context into a copy of every message's metadata. The package
// documentation tells what nil arguments mean.
//
// A trace context that metadata carries already, as that of a message published
// onwards does, is replaced, and the span links to it. The span of a PublishTx
// ends with the call: that the transaction commits is not known then.
func Publisher(next publish.Publisher, tp trace.TracerProvider, propagator propagation.TextMapPropagator) publish.Publisher {
	return &publisher{next, newTracer(tp, propagator)}
}

type publisher struct {
	next   publish.Publisher
	tracer tracer
}

func (p *publisher) Publish(ctx context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	return p.trace(ctx, tenant, topic, msgs, func(ctx context.Context, msgs []publish.Message) ([]backend.Receipt, error) {
		return p.next.Publish(ctx, tenant, topic, msgs...)
	})
}

func (p *publisher) PublishTx(ctx context.Context, tx *sql.Tx, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	return p.trace(ctx, tenant, topic, msgs, func(ctx context.Context, msgs []publish.Message) ([]backend.Receipt, error) {
		return p.next.PublishTx(ctx, tx, tenant, topic, msgs...)
	})
}

func (p *publisher) trace(
	ctx context.Context, tenant tenants.ID, topic string, msgs []publish.Message,
	send func(context.Context, []publish.Message) ([]backend.Receipt, error),
) ([]backend.Receipt, error) {
	if len(msgs) == 0 {
		return send(ctx, nil) // nothing happens, but the tenant is checked
	}
	const operation = "publish"
	ctx, span := p.tracer.Start(ctx, operation+" "+topic, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(common(operation, tenant, topic), ofMessages(msgs)...)...),
		trace.WithLinks(p.carried(msgs)...))
	defer span.End()

	receipts, err := send(ctx, p.inject(ctx, msgs))
	if errors.Is(err, backend.ErrTooLarge) {
		span.AddEvent("too large, published without the trace context")
		receipts, err = send(ctx, p.with(nil, msgs))
	}
	if err != nil {
		fail(span, err)
		return receipts, err
	}
	duplicates := 0
	for _, r := range receipts {
		if r.Duplicate {
			duplicates++
		}
	}
	if duplicates > 0 {
		span.SetAttributes(duplicatesKey.Int(duplicates))
	}
	return receipts, nil
}

func ofMessages(msgs []publish.Message) []attribute.KeyValue {
	attributes := []attribute.KeyValue{semconv.MessagingOperationTypeSend}
	if len(msgs) == 1 {
		attributes = append(attributes, semconv.MessagingMessageID(msgs[0].ID), semconv.MessagingMessageBodySize(len(msgs[0].Payload)))
	} else {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(msgs)))
	}
	for _, m := range msgs {
		if m.PartitionKey != msgs[0].PartitionKey {
			return attributes
		}
	}
	return append(attributes, semconv.MessagingDestinationPartitionID(msgs[0].PartitionKey))
}

// carried returns links to the trace contexts that messages come with.
func (p *publisher) carried(msgs []publish.Message) (links []trace.Link) {
	seen := make(map[trace.SpanID]bool)
	for _, m := range msgs {
		if len(m.Metadata) == 0 {
			continue
		}
		sc := trace.SpanContextFromContext(p.tracer.propagator.Extract(context.Background(), propagation.MapCarrier(m.Metadata)))
		if sc.IsValid() && !seen[sc.SpanID()] {
			seen[sc.SpanID()] = true
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	return links
}

// tracedAtKey is the metadata key for the time of the publish, in Unix
// milliseconds. Message.PublishedAt is another after a redrive.
const tracedAtKey = "traced_at"

// inject returns copies of msgs that carry the context of ctx, and of the
// context they came with nothing.
func (p *publisher) inject(ctx context.Context, msgs []publish.Message) []publish.Message {
	carrier := make(propagation.MapCarrier)
	p.tracer.propagator.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return msgs
	}
	carrier[tracedAtKey] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	return p.with(carrier, msgs)
}

// with returns copies of msgs with the fields of carrier in place of those of
// the context they came with.
func (p *publisher) with(carrier propagation.MapCarrier, msgs []publish.Message) []publish.Message {
	injected := make([]publish.Message, len(msgs))
	for i, m := range msgs {
		metadata := make(map[string]string, len(m.Metadata)+len(carrier))
		maps.Copy(metadata, m.Metadata)
		for _, field := range p.tracer.propagator.Fields() {
			delete(metadata, field)
		}
		delete(metadata, tracedAtKey)
		maps.Copy(metadata, carrier)
		m.Metadata = metadata
		injected[i] = m
	}
	return injected
}
