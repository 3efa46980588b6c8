package protobuf_test

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/consume/protobuf"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// A message from one end to the other. StringValue stands for a generated type
// of your own.
func ExampleHandler() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)

	landed := make(chan string)
	runner, err := consume.NewRunner(consume.Params{Subscriber: q, Handlers: []consume.Handler{
		protobuf.Handler(consume.Subscription{Topic: "land", Group: "lander"},
			func(_ context.Context, change *wrapperspb.StringValue, d consume.Delivery) error {
				landed <- change.GetValue()
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
	m, err := protobuf.Message(publish.IntentID("c4", "requested"), "main", wrapperspb.String("c4"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := publish.New(q).Publish(ctx, "docs", "land", m); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("landed", <-landed)
	fmt.Println(runner.Stop(ctx))
	// Output:
	// landed c4
	// <nil>
}

func ExampleMessage() {
	payload, err := structpb.NewStruct(map[string]any{"change": "c4"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := protobuf.Message(publish.IntentID("c4", "requested"), "main", payload)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.ID, m.PartitionKey, len(m.Payload), m.Metadata[publish.ContentTypeKey])
	// Output: c4:requested main 16 application/x-protobuf
}
