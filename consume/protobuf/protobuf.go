// Package protobuf is for payloads that are protocol buffers: [Handler] makes
// handlers of functions that take the payload decoded, [Message] makes messages
// for them. T is a generated type, by pointer:
//
//	m, err := protobuf.Message(id, key, &pb.Land{Change: "c4"})
//
//	protobuf.Handler(consume.Subscription{Topic: "land", Group: "lander"},
//		func(ctx context.Context, land *pb.Land, d consume.Delivery) error { … })
//
// A payload does not name its type, and one of another type may well decode, to
// unknown fields: give each topic one type, with a oneof for variants.
package protobuf

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
)

// ContentType is what messages made by [Message] have in their metadata under
// [publish.ContentTypeKey].
const ContentType = "application/x-protobuf"

// Handler makes a handler of a function that takes the payload decoded into a T
// of its own. Unknown fields are kept, and an empty payload is a T without any.
// A payload that does not decode, or lacks a field that proto2 requires, is
// rejected, since no further attempt could decode it. M is inferred.
func Handler[T interface {
	*M
	proto.Message
}, M any](s consume.Subscription, handle func(context.Context, T, consume.Delivery) error) consume.Handler {
	return consume.Decode(s, func(payload []byte) (T, error) {
		m := T(new(M))
		return m, proto.Unmarshal(payload, m)
	}, handle)
}

// Message returns a message whose payload is m in binary form, with the metadata
// [publish.ContentTypeKey]: [ContentType]. More metadata may be added to it. A
// nil m is refused with a [backend.FieldError]; other errors are those of
// proto.Marshal, such as text that is not valid UTF-8. Identifiers and size are
// checked on publish.
func Message(id, partitionKey string, m proto.Message) (publish.Message, error) {
	if m == nil || !m.ProtoReflect().IsValid() {
		return publish.Message{}, fmt.Errorf("encode payload of message %q: %w", id, &backend.FieldError{
			Field: "protobuf message", Value: fmt.Sprintf("nil %T", m), Rule: "hand in a message; an empty one is valid",
		})
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return publish.Message{}, fmt.Errorf("encode payload of message %q: %w", id, err)
	}
	return publish.Message{
		ID: id, PartitionKey: partitionKey, Payload: payload,
		Metadata: map[string]string{publish.ContentTypeKey: ContentType},
	}, nil
}
