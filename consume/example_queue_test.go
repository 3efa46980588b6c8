package consume_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// A runner from start to stop. mqfx does this for applications of Fx.
func Example() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)

	landed := make(chan string)
	runner, err := consume.NewRunner(consume.Params{
		Subscriber: q,
		Handlers: []consume.Handler{
			consume.JSON(consume.Subscription{Topic: "request", Group: "lander"},
				func(ctx context.Context, r Request, d consume.Delivery) error {
					landed <- r.Change
					return nil
				}),
		},
		Middleware:     []consume.Middleware{consume.Recover()},
		HandlerTimeout: 10 * time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runner.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range []string{"c4", "c5"} {
		m, err := publish.JSON(publish.IntentID(change, "requested"), "main", Request{Change: change})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := publish.New(q).Publish(ctx, "docs", "request", m); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("landed", <-landed)
	}

	drain, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	fmt.Println("stopped:", runner.Stop(drain))
	// Output:
	// landed c4
	// landed c5
	// stopped: <nil>
}

// What is rejected becomes a dead letter, which another handler may look at.
func ExampleReject() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)

	mourned := make(chan backend.Failure)
	runner, err := consume.NewRunner(consume.Params{Subscriber: q, Handlers: []consume.Handler{
		consume.Func(consume.Subscription{Topic: "merge", Group: "lander"}, func(context.Context, consume.Delivery) error {
			return consume.Reject(errConflict)
		}),
		consume.Func(consume.Subscription{Topic: "merge_dlq", Group: "mourner"}, func(_ context.Context, d consume.Delivery) error {
			f, _ := d.Failure()
			mourned <- f
			return nil
		}),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runner.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := publish.New(q).Publish(ctx, "docs", "merge", publish.Message{ID: "c4", PartitionKey: "main"}); err != nil {
		fmt.Println(err)
		return
	}
	f := <-mourned
	fmt.Printf("%s %s, attempt %d: %s\n", f.OriginalTopic, f.OriginalID, f.Attempts, f.LastError)
	fmt.Println(runner.Stop(ctx))
	// Output:
	// merge c4, attempt 1: does not merge
	// <nil>
}

// A handler that hangs loses its message after HandlerTimeout, and the next
// attempt gets it.
func ExampleSubscription() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)

	landed := make(chan int, 10)
	runner, err := consume.NewRunner(consume.Params{Subscriber: q, Handlers: []consume.Handler{
		consume.Func(consume.Subscription{
			Topic: "merge", Group: "lander",
			HandlerTimeout: 50 * time.Millisecond,
			Retry:          backend.RetryPolicy{InitialBackoff: time.Millisecond},
		}, func(ctx context.Context, d consume.Delivery) error {
			if d.Attempt == 1 {
				<-ctx.Done()
				fmt.Println(context.Cause(ctx))
				return ctx.Err()
			}
			landed <- d.Attempt
			return nil
		}),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runner.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := publish.New(q).Publish(ctx, "docs", "merge", publish.Message{ID: "c4", PartitionKey: "main"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("landed by attempt", <-landed)
	fmt.Println(runner.Stop(ctx))
	// Output:
	// handler timed out
	// landed by attempt 2
	// <nil>
}
