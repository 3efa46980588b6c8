package memory_test

import (
	"context"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/tenants"
)

func Example() {
	ctx := context.Background()
	set, err := tenants.Parse("acme, umbrella")
	if err != nil {
		panic(err)
	}
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := q.Close(ctx); err != nil {
			panic(err)
		}
	}()
	sub, err := q.Subscribe(ctx, "changes", backend.SubscriptionConfig{Group: "landers"})
	if err != nil {
		panic(err)
	}

	for range 2 {
		receipts, err := q.Publish(ctx, backend.Message{
			Tenant: "acme", Topic: "changes", PartitionKey: "main", ID: "change-7", Payload: []byte("diff"),
		})
		if err != nil {
			panic(err)
		}
		fmt.Println("duplicate:", receipts[0].Duplicate)
	}
	d := <-sub.Deliveries()
	fmt.Printf("%s: %s\n", d.Message().Tenant, d.Message().Payload)
	if err := d.Ack(ctx); err != nil {
		panic(err)
	}
	fmt.Println("messages left:", q.Stats().Messages)
	// Output:
	// duplicate: false
	// duplicate: true
	// acme: diff
	// messages left: 0
}
