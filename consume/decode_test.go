package consume_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

func TestDecodeTakesAnyFormat(t *testing.T) {
	var got int
	h := consume.Decode(onMerge, func(payload []byte) (int, error) { return strconv.Atoi(string(payload)) },
		func(_ context.Context, n int, _ consume.Delivery) error { got = n; return errBroken })
	if s := h.Subscription(); s.Topic != onMerge.Topic || s.Group != onMerge.Group {
		t.Errorf("got subscription %+v", s)
	}
	if err := h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Payload: []byte("42")}}); !errors.Is(err, errBroken) || got != 42 {
		t.Errorf("got %d, error %v", got, err)
	}
	got = 0
	err := h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Payload: []byte("4x2")}})
	if _, ok := errors.AsType[*consume.RejectError](err); !ok || !errors.Is(err, strconv.ErrSyntax) || got != 0 {
		t.Errorf("handled %d, got error %v", got, err)
	}
	if want := "decode payload of 3 bytes into int: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
	_, err = consume.NewRunner(consume.Params{Subscriber: &script{}, Handlers: handlers(
		consume.Decode(onMerge, func([]byte) (int, error) { return 0, nil }, nil))})
	if err == nil || !strings.Contains(err.Error(), "handler 1 of 1 is nil") {
		t.Errorf("without a function: %v", err)
	}
}
