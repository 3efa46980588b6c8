package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// oneMessage is a store with one message that nothing happens to but what the
// test decides.
type oneMessage struct {
	engine.Store // the rest is not called

	settle func(context.Context, []engine.Settlement) ([]engine.Settled, error)
	taken  bool
}

func (o *oneMessage) Register(context.Context, []tenants.ID) error { return nil }

func (o *oneMessage) Discover(context.Context, []tenants.ID, string, int) ([]engine.Stored, error) {
	if o.taken {
		return nil, nil
	}
	return []engine.Stored{{Tenant: "a", Key: "key", Head: 1, Tail: 1}}, nil
}

func (o *oneMessage) Acquire(context.Context, tenants.ID, []engine.Candidate) (engine.Acquired, error) {
	o.taken = true
	return engine.Acquired{Grants: []engine.Grant{{Lease: engine.Lease{Key: "key", Epoch: 1}}}}, nil
}

func (o *oneMessage) Fetch(_ context.Context, _ tenants.ID, ranges []engine.Range) ([]engine.Fetched, error) {
	m := engine.Message{Message: backend.Message{Tenant: "a", Topic: "topic", PartitionKey: "key", ID: "id", Offset: 1}}
	return []engine.Fetched{{Key: "key", Messages: []engine.Message{m}, Exhausted: true}}, nil
}

func (o *oneMessage) Settle(ctx context.Context, _ tenants.ID, list []engine.Settlement) ([]engine.Settled, error) {
	return o.settle(ctx, list)
}

func (o *oneMessage) Renew(context.Context, tenants.ID, []engine.Lease) ([]string, error) {
	return nil, errors.New("the network is away")
}

func (o *oneMessage) Control(context.Context, []tenants.ID) (map[tenants.ID]engine.Control, error) {
	return nil, nil
}
func (o *oneMessage) Beat(context.Context, tenants.ID) error                      { return nil }
func (o *oneMessage) Leave(context.Context, tenants.ID) error                     { return nil }
func (o *oneMessage) Purge(context.Context, []tenants.ID) error                   { return nil }
func (o *oneMessage) Release(context.Context, tenants.ID, []engine.Release) error { return nil }

// A lease may run out by the owner's clock while its settlement is being
// written. What the transaction says decides then, not the clock.
func TestSettlementUnderWayOutlivesTheLocalLease(t *testing.T) {
	for name, tc := range map[string]struct {
		result engine.Settled
		err    error
		want   error
	}{
		"committed": {result: engine.Settled{Drained: true}},
		"fenced":    {result: engine.Settled{Lost: true}, want: backend.ErrLeaseLost},
		"unknown":   {err: errors.New("invalid connection"), want: backend.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := backend.SubscriptionConfig{Group: "group", SubscriberName: "me", LeaseDuration: time.Second}.WithDefaults()
				set, err := tenants.New("a")
				if err != nil {
					t.Fatal(err)
				}
				store := &oneMessage{settle: func(context.Context, []engine.Settlement) ([]engine.Settled, error) {
					time.Sleep(2 * cfg.LeaseDuration)
					return []engine.Settled{tc.result}, tc.err
				}}
				sub, err := engine.Start(t.Context(), engine.Options{Topic: "topic", Config: cfg, Tenants: set, Store: store, Hub: new(engine.Hub)})
				if err != nil {
					t.Fatal(err)
				}
				d := <-sub.Deliveries()
				if err := d.Ack(t.Context()); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("Ack: %v, want %v", err, tc.want)
				}
				if err := sub.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
