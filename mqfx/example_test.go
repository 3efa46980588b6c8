package mqfx_test

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

// Request asks for a change to be landed.
type Request struct{ Change string }

// NewLandHandler returns a handler with what it depends on.
func NewLandHandler(shutdown fx.Shutdowner) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: "land", Group: "lander"},
		func(_ context.Context, r Request, d consume.Delivery) error {
			fmt.Printf("%s: landing %s\n", d.Tenant, r.Change)
			return shutdown.Shutdown() // only so that the example ends
		})
}

// RequestOne publishes once the application has started.
func RequestOne(lc fx.Lifecycle, out publish.Publisher) {
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		_, err := out.Publish(ctx, "docs", "land", publish.Message{
			ID: publish.IntentID("change-7"), PartitionKey: "main", Payload: []byte(`{"Change": "change-7"}`),
		})
		return err
	}))
}

// A whole service: mqfx.Module, its handlers, and whatever else the application
// is made of.
func Example() {
	os.Setenv("MQ_TENANTS", "docs,search")
	defer os.Unsetenv("MQ_TENANTS")
	os.Setenv("MQ_CONFIG", "testdata/memory.yaml")
	defer os.Unsetenv("MQ_CONFIG")

	fx.New(
		fx.NopLogger,
		mqfx.Module,
		mqfx.Handle(NewLandHandler),
		fx.Invoke(RequestOne),
	).Run()
	// Output: docs: landing change-7
}
