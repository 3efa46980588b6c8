package consume_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// A middleware of one's own, here between those that observe and those that
// bound the handler. A test calls Wrap itself; a service lists it in
// [consume.Params].
func ExampleMiddleware() {
	suspended := map[tenants.ID]bool{"ios": true}
	suspend := consume.Middleware{
		Name: "suspend", Priority: consume.PriorityTimeout - 50,
		Wrap: func(next consume.Handler) consume.Handler {
			return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
				if suspended[d.Tenant] {
					return consume.Postpone(time.Minute)
				}
				return next.Handle(ctx, d)
			})
		},
	}

	h := suspend.Wrap(consume.Func(consume.Subscription{Topic: "merge", Group: "lander"},
		func(_ context.Context, d consume.Delivery) error {
			fmt.Println("landing for", d.Tenant)
			return nil
		}))
	for _, tenant := range []tenants.ID{"docs", "ios"} {
		fmt.Println(h.Handle(context.Background(), consume.Delivery{Message: backend.Message{Tenant: tenant}}))
	}
	// Output:
	// landing for docs
	// <nil>
	// postponed for 1m0s
}

// A single handler is wrapped without a middleware.
func ExampleWrap() {
	h := consume.Func(consume.Subscription{Topic: "merge", Group: "lander"},
		func(context.Context, consume.Delivery) error { return errConflict })

	once := consume.Wrap(h, func(ctx context.Context, d consume.Delivery) error {
		err := h.Handle(ctx, d)
		if err != nil && d.Attempt > 1 {
			return consume.Reject(err)
		}
		return err
	})
	for attempt := range 2 {
		d := consume.Delivery{Attempt: attempt + 1}
		fmt.Println(d.Outcome(once.Handle(context.Background(), d)))
	}
	fmt.Println(once.Subscription().Topic)
	// Output:
	// nack
	// reject
	// merge
}

// A panic is an error to whatever is outside of Recover.
func ExampleRecover() {
	h := consume.Recover().Wrap(consume.Func(consume.Subscription{Topic: "merge", Group: "lander"},
		func(context.Context, consume.Delivery) error { panic("lost my mind") }))

	err := h.Handle(context.Background(), consume.Delivery{})
	p, ok := errors.AsType[*consume.PanicError](err)
	fmt.Println(ok, p.Value)
	// Output: true lost my mind
}

// A format of one's own: a payload that is a plain number.
func ExampleDecode() {
	h := consume.Decode(consume.Subscription{Topic: "build", Group: "watcher"},
		func(payload []byte) (int, error) { return strconv.Atoi(string(payload)) },
		func(_ context.Context, build int, _ consume.Delivery) error {
			fmt.Println("watching build", build)
			return nil
		})
	for _, payload := range []string{"17", "x"} {
		d := consume.Delivery{Message: backend.Message{Payload: []byte(payload)}}
		fmt.Println(d.Outcome(h.Handle(context.Background(), d)))
	}
	// Output:
	// watching build 17
	// ack
	// reject
}

// The unit test of a handler of dead letters.
func ExampleDelivery_WithFailure() {
	h := consume.Func(consume.Subscription{Topic: "merge_dlq", Group: "mourner"},
		func(_ context.Context, d consume.Delivery) error {
			if f, ok := d.Failure(); ok {
				fmt.Printf("gave up after %d attempts: %s\n", f.Attempts, f.LastError)
			}
			return nil
		})
	d := consume.Delivery{Attempt: 1}.WithFailure(backend.Failure{Attempts: 10, LastError: "does not merge"})
	fmt.Println(h.Handle(context.Background(), d))
	// Output:
	// gave up after 10 attempts: does not merge
	// <nil>
}
