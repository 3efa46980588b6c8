// Package tracing makes OpenTelemetry spans of what is published and handled,
// and carries the trace from one to the other in the messages' metadata:
//
//	pub = tracing.Publisher(pub, provider, nil)
//	runner, err := consume.NewRunner(consume.Params{
//		Middleware: []consume.Middleware{tracing.Middleware(provider, nil)}, …
//	})
//
// It needs the API of OpenTelemetry only; the application brings the SDK, and
// without one nothing is recorded. A nil provider means the global one, as it is
// when Publisher or Middleware is called. A nil propagator means
// [propagation.TraceContext] and [propagation.Baggage], whatever the global one.
//
// # Spans
//
// Names, kinds and attributes are those of the semantic conventions for
// messaging, version 1.43.0, which are in development there and will be followed
// here. Every publish is one span "publish {topic}" of kind producer, also of a
// batch, whose messages all carry it as their creation context. Every attempt of
// every group is one span "process {topic}" of kind consumer, which links to
// it. No spans are made of receiving and settling, which nobody waits for.
//
//	messaging.system                    "tenantmq"
//	messaging.operation.name, .type     "publish", "send"; "process", "process"
//	messaging.destination.name          the topic
//	messaging.destination.partition.id  the partition key, if it is that of all messages
//	messaging.batch.message_count       of a publish of several
//	messaging.message.id, .body.size    unless there are several
//	messaging.consumer.group.name       of an attempt
//	error.type                          of a failed one
//	tenantmq.tenant                     the tenant
//	tenantmq.duplicates                 of a publish: messages stored before, if any
//	tenantmq.attempt                    1 for the first
//	tenantmq.outcome                    of an attempt, see consume.Delivery.Outcome
//
// # Traces
//
// The first attempt at a message, if it begins within an hour of the publish, is
// a child of the publishing span besides linking to it, so that what usually
// happens is seen as one trace. Every other one (a retry, a message out of a long
// backlog, a dead letter redriven days later) begins a trace of its own, which
// links to the publishing span: a trace should not stay open for days
// (TestAttemptsBelongToThePublishingSpan, TestTraceSurvivesDeadLetterAndRedrive).
// The handler's context carries the span and the publisher's baggage, so what it
// publishes through Publisher continues the trace.
//
// A missing or damaged trace context in metadata is ignored: the attempt then
// belongs to no publishing span.
//
// # Limits
//
// A message's metadata carries the trace context and, under traced_at, the time
// it is from. Both take some 110 bytes of it, tracestate and baggage may take
// several KB, and metadata is bounded (16 KiB by default). A
// publish must not fail for being traced: one that is refused with
// backend.ErrTooLarge is tried again without the context, which an event of the
// span tells (TestPublishThatIsTooLargeWithTheContext). Such a refusal comes
// before anything is written, so the second try is safe, also within a
// transaction.
package tracing
