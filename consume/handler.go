package consume

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
)

// Handler consumes one topic for one group.
type Handler interface {
	// Subscription is asked once, when the [Runner] is made.
	Subscription() Subscription

	// Handle handles one delivery; the package documentation says what its
	// result means. It is called from several goroutines at once. ctx carries
	// the tenant (tenants.FromContext); it ends when Handle returns, and before
	// that when the delivery's lease is lost, its HandlerTimeout is over or a
	// stop has run out of time: another attempt follows, so the work is best
	// given up.
	Handle(ctx context.Context, d Delivery) error
}

// Func makes a handler of a function.
func Func(s Subscription, handle func(context.Context, Delivery) error) Handler {
	return &funcHandler{subscription: s, handle: handle, name: funcName(handle)}
}

// JSON makes a handler of a function that takes the payload decoded. Unknown
// fields are ignored. A payload that is not exactly one JSON value fit for T is
// rejected, since no further attempt could decode it. publish.JSON makes
// messages for it.
func JSON[T any](s Subscription, handle func(context.Context, T, Delivery) error) Handler {
	return Decode(s, func(payload []byte) (v T, err error) {
		err = json.Unmarshal(payload, &v)
		return v, err
	}, handle)
}

// Decode makes a handler of a function that takes the payload as decode reads
// it. A payload that decode returns an error for is rejected, since no further
// attempt could decode it. Both functions are called from several goroutines at
// once. It is what [JSON] and protobuf.Handler are made of, and for formats of
// your own.
func Decode[T any](s Subscription, decode func(payload []byte) (T, error), handle func(context.Context, T, Delivery) error) Handler {
	return &funcHandler{subscription: s, name: funcName(handle), handle: func(ctx context.Context, d Delivery) error {
		v, err := decode(d.Payload)
		if err != nil {
			return Reject(fmt.Errorf("decode payload of %d bytes into %v: %w", len(d.Payload), reflect.TypeFor[T](), err))
		}
		return handle(ctx, v, d)
	}}
}

type funcHandler struct {
	subscription Subscription
	handle       func(context.Context, Delivery) error
	name         string
}

func (h *funcHandler) Subscription() Subscription                   { return h.subscription }
func (h *funcHandler) Handle(ctx context.Context, d Delivery) error { return h.handle(ctx, d) }

// handlerName is what errors call a handler.
func handlerName(h Handler) string {
	switch h := h.(type) {
	case *funcHandler:
		return h.name
	case *wrapper:
		return handlerName(h.Handler)
	}
	return fmt.Sprintf("%T", h)
}

// missing tells that there is nothing to call.
func missing(h Handler) bool {
	switch h := h.(type) {
	case nil:
		return true
	case *funcHandler:
		return h.name == nilFunc
	case *wrapper:
		return h.handle == nil || missing(h.Handler)
	}
	return false
}

const nilFunc = "nil"

// funcName finds the name of a function, since all funcHandlers are one type.
func funcName(f any) string {
	v := reflect.ValueOf(f)
	if v.IsNil() {
		return nilFunc
	}
	return runtime.FuncForPC(v.Pointer()).Name()
}
