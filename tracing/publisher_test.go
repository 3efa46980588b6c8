package tracing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
	"github.com/tenantmq/tenantmq/tracing"
)

// store is the publisher that is traced. It keeps what it is given.
type store struct {
	calls    [][]publish.Message
	txs      []*sql.Tx
	receipts []backend.Receipt
	errs     []error // of the first calls
}

func (s *store) Publish(ctx context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	return s.PublishTx(ctx, nil, tenant, topic, msgs...)
}

func (s *store) PublishTx(_ context.Context, tx *sql.Tx, _ tenants.ID, _ string, msgs ...publish.Message) ([]backend.Receipt, error) {
	s.calls, s.txs = append(s.calls, msgs), append(s.txs, tx)
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	return s.receipts, nil
}

func TestPublishSpan(t *testing.T) {
	one := publish.Message{ID: "1", PartitionKey: "k", Payload: []byte("four")}
	other := publish.Message{ID: "2", PartitionKey: "l"}
	sent := map[string]string{
		"messaging.system": "tenantmq", "messaging.operation.name": "publish", "messaging.operation.type": "send",
		"messaging.destination.name": "land", "tenantmq.tenant": "docs",
	}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(sent)
		maps.Copy(all, more)
		return all
	}
	for _, c := range []struct {
		name     string
		msgs     []publish.Message
		receipts []backend.Receipt
		want     map[string]string
	}{
		{"one", []publish.Message{one}, []backend.Receipt{{}}, with(map[string]string{
			"messaging.message.id": "1", "messaging.message.body.size": "4", "messaging.destination.partition.id": "k",
		})},
		{"batch of a partition", []publish.Message{one, one}, []backend.Receipt{{}, {Duplicate: true}}, with(map[string]string{
			"messaging.batch.message_count": "2", "messaging.destination.partition.id": "k", "tenantmq.duplicates": "1",
		})},
		{"batch", []publish.Message{one, other}, []backend.Receipt{{}, {}}, with(map[string]string{"messaging.batch.message_count": "2"})},
	} {
		for _, tx := range []*sql.Tx{nil, {}} {
			t.Run(fmt.Sprint(c.name, ", in a transaction: ", tx != nil), func(t *testing.T) {
				r, next := record(), &store{receipts: c.receipts}
				pub := tracing.Publisher(next, r, nil)
				var receipts []backend.Receipt
				var err error
				if tx == nil {
					receipts, err = pub.Publish(t.Context(), "docs", "land", c.msgs...)
				} else {
					receipts, err = pub.PublishTx(t.Context(), tx, "docs", "land", c.msgs...)
				}
				if err != nil || cmp.Diff(c.receipts, receipts) != "" || next.txs[0] != tx {
					t.Errorf("got receipts %v, error %v, transaction %p", receipts, err, next.txs[0])
				}
				span := r.one(t, "publish land")
				if span.SpanKind() != trace.SpanKindProducer || span.Status().Code != codes.Unset {
					t.Errorf("got kind %v, status %v", span.SpanKind(), span.Status())
				}
				if diff := cmp.Diff(c.want, attributes(span)); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
				for i, m := range next.calls[0] {
					carried := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(m.Metadata)))
					if carried.SpanID() != span.SpanContext().SpanID() || carried.TraceID() != span.SpanContext().TraceID() {
						t.Errorf("message %d carries %v", i, m.Metadata)
					}
					m.Metadata = c.msgs[i].Metadata
					if diff := cmp.Diff(c.msgs[i], m); diff != "" {
						t.Errorf("message %d is changed (-want +got):\n%s", i, diff)
					}
				}
			})
		}
	}
}

// The caller's map is read only, and may be that of several messages.
func TestPublishLeavesCallersMetadataAlone(t *testing.T) {
	r, next := record(), &store{}
	given := map[string]string{"a": "b"}
	before := maps.Clone(given)
	m := publish.Message{ID: "1", PartitionKey: "k", Metadata: given}
	if _, err := tracing.Publisher(next, r, nil).Publish(t.Context(), "docs", "land", m, m); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(given, before) {
		t.Errorf("the caller's metadata became %v", given)
	}
	for _, m := range next.calls[0] {
		if m.Metadata["a"] != "b" || m.Metadata["traceparent"] == "" {
			t.Errorf("published with metadata %v", m.Metadata)
		}
	}
	next.calls[0][0].Metadata["a"] = "c"
	if next.calls[0][1].Metadata["a"] != "b" {
		t.Error("the messages share one map")
	}
}

// A message published onwards with the metadata it came with does not take its
// old trace along, but is linked to it.
func TestPublishReplacesAContextAndLinksToIt(t *testing.T) {
	const old = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r, next := record(), &store{}
	m := publish.Message{ID: "1", PartitionKey: "k", Metadata: map[string]string{
		"traceparent": old, "tracestate": "old=1", "baggage": "old=1", "a": "b",
	}}
	if _, err := tracing.Publisher(next, r, nil).Publish(t.Context(), "docs", "land", m, m); err != nil {
		t.Fatal(err)
	}
	span := r.one(t, "publish land")
	if l := span.Links(); len(l) != 1 || l[0].SpanContext.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("linked to %v", l)
	}
	got := next.calls[0][0].Metadata
	delete(got, "traced_at")
	want := map[string]string{"a": "b", "traceparent": "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestPublishThatFails(t *testing.T) {
	errBroken := errors.New("server has gone away\nand more")
	r, next := record(), &store{errs: []error{errBroken}}
	_, err := tracing.Publisher(next, r, nil).Publish(t.Context(), "docs", "land", publish.Message{ID: "1"})
	if !errors.Is(err, errBroken) || len(next.calls) != 1 {
		t.Errorf("got error %v in %d calls", err, len(next.calls))
	}
	span := r.one(t, "publish land")
	if s := span.Status(); s.Code != codes.Error || s.Description != "server has gone away" {
		t.Errorf("got status %v", s)
	}
	if value(span, "error.type") != "*errors.errorString" || fmt.Sprint(events(span)) != "[exception]" {
		t.Errorf("got error type %q, events %v", value(span, "error.type"), events(span))
	}
}

func TestPublishNothingMakesNoSpan(t *testing.T) {
	r, next := record(), &store{}
	if _, err := tracing.Publisher(next, r, nil).Publish(t.Context(), "docs", "land"); err != nil || len(next.calls) != 1 || len(next.calls[0]) != 0 {
		t.Errorf("got error %v, calls %v", err, next.calls)
	}
	if n := len(r.ended.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// Tracing makes no publish fail: where the context does not fit it is left out.
func TestPublishThatIsTooLargeWithTheContext(t *testing.T) {
	r, q := record(), openQueue(t, memory.Config{MaxMetadata: 200, MaxPayload: 10})
	pub := tracing.Publisher(publish.New(q), r, nil)
	member, err := baggage.NewMember("customer", strings.Repeat("x", 200))
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(t.Context(), bag)
	receipts, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "1", PartitionKey: "k"})
	if err != nil || len(receipts) != 1 {
		t.Fatalf("got receipts %v, error %v", receipts, err)
	}
	if span := r.one(t, "publish land"); fmt.Sprint(events(span)) != "[too large, published without the trace context]" {
		t.Errorf("got events %v", events(span))
	}
	again, err := pub.Publish(t.Context(), "docs", "land", publish.Message{ID: "1", PartitionKey: "k"})
	if err != nil || !again[0].Duplicate {
		t.Errorf("stored elsewhere: got receipts %v, error %v", again, err)
	}
	old := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "traced_at": "1000", "queue": "a"}
	if _, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "old", PartitionKey: "old", Metadata: old}); err != nil {
		t.Fatal(err)
	}
	sub, err := q.Subscribe(t.Context(), "land", backend.SubscriptionConfig{Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d := <-sub.Deliveries()
		if m := d.Message(); m.ID == "old" && (m.Metadata["traceparent"] != "" || m.Metadata["traced_at"] != "" || m.Metadata["queue"] != "a") {
			t.Errorf("without a context of its own the message carries another's: %v", m.Metadata)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := pub.Publish(ctx, "docs", "land", publish.Message{ID: "2", PartitionKey: "k", Payload: make([]byte, 11)}); !errors.Is(err, backend.ErrTooLarge) ||
		!strings.Contains(err.Error(), "payload") {
		t.Errorf("too large anyway: got error %v", err)
	}
}

// A propagator of the user's is used, and not the global one.
func TestPublishUsesThePropagatorGiven(t *testing.T) {
	r, next := record(), &store{}
	m, err := baggage.NewMember("customer", "7")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(m)
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(t.Context(), bag)
	for _, c := range []struct {
		propagator propagation.TextMapPropagator
		want       []bool // traceparent, baggage
	}{
		{nil, []bool{true, true}},
		{propagation.Baggage{}, []bool{false, true}},
		{propagation.TraceContext{}, []bool{true, false}},
		{propagation.NewCompositeTextMapPropagator(), []bool{false, false}},
	} {
		next.calls = nil
		if _, err := tracing.Publisher(next, r, c.propagator).Publish(ctx, "docs", "land", publish.Message{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		got := next.calls[0][0].Metadata
		if (got["traceparent"] != "") != c.want[0] || (got["baggage"] == "customer=7") != c.want[1] {
			t.Errorf("%T injects %v", c.propagator, got)
		}
	}
}
