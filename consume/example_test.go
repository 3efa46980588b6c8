package consume_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/tenants"
)

type Request struct {
	Change string `json:"change"`
}

var errConflict = errors.New("does not merge")

// A typed handler, called as a unit test calls it: without a queue.
func ExampleJSON() {
	h := consume.JSON(consume.Subscription{Topic: "request", Group: "lander"},
		func(ctx context.Context, r Request, d consume.Delivery) error {
			tenant, _ := tenants.FromContext(ctx)
			fmt.Printf("%s: landing %s, attempt %d\n", tenant, r.Change, d.Attempt)
			return nil
		})

	ctx := tenants.NewContext(context.Background(), "docs")
	fmt.Println(h.Handle(ctx, consume.Delivery{
		Message: backend.Message{Tenant: "docs", Payload: []byte(`{"change":"c4"}`)}, Attempt: 1,
	}))
	fmt.Println(h.Handle(ctx, consume.Delivery{Message: backend.Message{Tenant: "docs", Payload: []byte(`{`)}}))
	// Output:
	// docs: landing c4, attempt 1
	// <nil>
	// decode payload of 1 bytes into consume_test.Request: unexpected end of JSON input
}

// A handler that waits its turn and gives up what cannot succeed.
func ExampleFunc() {
	land := func(ctx context.Context, change string) error { return fmt.Errorf("land %s: %w", change, errConflict) }
	busy := func(tenants.ID) bool { return false }

	h := consume.Func(
		consume.Subscription{Topic: "merge", Group: "lander", MaxInFlight: 8, Ordering: backend.Strict},
		func(ctx context.Context, d consume.Delivery) error {
			if busy(d.Tenant) {
				return consume.Postpone(10 * time.Second)
			}
			err := land(ctx, string(d.Payload))
			if errors.Is(err, errConflict) {
				return consume.Reject(err) // no attempt will do better
			}
			return err
		})

	err := h.Handle(context.Background(), consume.Delivery{Message: backend.Message{Payload: []byte("c4")}})
	_, rejected := errors.AsType[*consume.RejectError](err)
	fmt.Println(rejected, err)
	// Output: true land c4: does not merge
}
