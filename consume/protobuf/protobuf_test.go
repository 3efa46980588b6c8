package protobuf_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/consume/protobuf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var onLand = consume.Subscription{Topic: "land", Group: "lander"}

var errBroken = errors.New("build is broken")

func TestHandlerDecodesWhatMessageEncodes(t *testing.T) {
	want, err := structpb.NewStruct(map[string]any{"change": "c4", "size": 3})
	if err != nil {
		t.Fatal(err)
	}
	m, err := protobuf.Message("1", "k", want)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "1" || m.PartitionKey != "k" {
		t.Errorf("got id %q, key %q", m.ID, m.PartitionKey)
	}
	if diff := cmp.Diff(map[string]string{"content_type": "application/x-protobuf"}, m.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	var got []*structpb.Struct
	h := protobuf.Handler(onLand, func(_ context.Context, s *structpb.Struct, d consume.Delivery) error {
		if string(d.Payload) != string(m.Payload) {
			t.Errorf("the delivery's payload is %q", d.Payload)
		}
		got = append(got, s)
		return errBroken
	})
	if s := h.Subscription(); s.Topic != onLand.Topic || s.Group != onLand.Group {
		t.Errorf("got subscription %+v", s)
	}
	for range 2 {
		if err := h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Payload: m.Payload}}); !errors.Is(err, errBroken) {
			t.Errorf("got error %v, want the function's", err)
		}
	}
	if len(got) != 2 || !proto.Equal(got[0], want) || !proto.Equal(got[1], want) {
		t.Fatalf("got %v, want %v twice", got, want)
	}
	if got[0] == got[1] {
		t.Error("two deliveries share one message")
	}
}

func TestHandlerDecodesOrRejects(t *testing.T) {
	for _, c := range []struct {
		name, payload string
		decoded       bool
	}{
		{"empty", "", true},
		{"unknown field", string(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 7)), true},
		{"cut off", "\x0a\x05land", false},
		{"invalid UTF-8", "\x0a\x01\xff", false},
		{"JSON", `{"change":"c4"}`, false},
	} {
		handled := false
		h := protobuf.Handler(onLand, func(_ context.Context, v *wrapperspb.StringValue, _ consume.Delivery) error {
			handled = true
			if v == nil {
				t.Errorf("%s: decoded nil", c.name)
			}
			return nil
		})
		err := h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Payload: []byte(c.payload)}})
		_, rejected := errors.AsType[*consume.RejectError](err)
		if handled != c.decoded || rejected == c.decoded {
			t.Errorf("%s: handled %v, error %v", c.name, handled, err)
		}
		if rejected && !strings.Contains(err.Error(), "into *wrapperspb.StringValue") {
			t.Errorf("%s: error %q does not name the type", c.name, err)
		}
	}
}

// Errors name the function, as they do for consume.JSON.
func TestHandlerIsNamedAfterItsFunction(t *testing.T) {
	_, err := consume.NewRunner(consume.Params{Subscriber: nowhere{}, Handlers: []consume.Handler{
		protobuf.Handler(consume.Subscription{Group: "g"}, land),
	}})
	if err == nil || !strings.Contains(err.Error(), "protobuf_test.land") {
		t.Errorf("got error %v", err)
	}
}

func land(context.Context, *structpb.Struct, consume.Delivery) error { return nil }

type nowhere struct{ backend.Subscriber }

func TestMessageRefusesWhatCannotBeEncoded(t *testing.T) {
	for name, m := range map[string]proto.Message{"nil": nil, "typed nil": (*structpb.Struct)(nil)} {
		if _, err := protobuf.Message("land:c4", "k", m); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), `"land:c4"`) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if _, err := protobuf.Message("land:c4", "k", wrapperspb.String("\xff")); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("invalid text: got error %v", err)
	}
	m, err := protobuf.Message("1", "k", &structpb.Struct{})
	if err != nil || len(m.Payload) != 0 {
		t.Errorf("an empty message: got payload %q, error %v", m.Payload, err)
	}
}
