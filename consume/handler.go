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
	// that when the delivery's lease is lost or a stop has run out of time:
	// another attempt follows, so the work is best given up.
	Handle(ctx context.Context, d Delivery) error
}

// Func makes a handler of a function.
func Func(s Subscription, handle func(context.Context, Delivery) error) Handler {
	return &funcHandler{subscription: s, handle: handle, name: funcName(handle)}
}

// JSON makes a handler of a function that takes the payload decoded. Unknown
// fields are ignored. A payload that is not exactly one JSON value fit for T is
// rejected, since no further attempt could decode it.
func JSON[T any](s Subscription, handle func(context.Context, T, Delivery) error) Handler {
	decode := func(ctx context.Context, d Delivery) error {
		var v T
		if err := json.Unmarshal(d.Payload, &v); err != nil {
			return Reject(fmt.Errorf("decode payload of %d bytes into %T: %w", len(d.Payload), v, err))
		}
		return handle(ctx, v, d)
	}
	return &funcHandler{subscription: s, handle: decode, name: funcName(handle)}
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
	if f, ok := h.(*funcHandler); ok {
		return f.name
	}
	return fmt.Sprintf("%T", h)
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
