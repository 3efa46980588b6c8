package engine

import (
	"context"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Options of a subscription. Config has its defaults filled in and is valid.
type Options struct {
	Topic   string
	Config  backend.SubscriptionConfig
	Tenants tenants.Set
	Store   Store
	Hub     *Hub
	Logger  *zap.Logger // nil: none
	Scope   tally.Scope // nil: none
}

// Subscription implements [backend.Subscription].
type Subscription struct{}

// Start registers the group and starts delivering. ctx bounds the
// registration only.
func Start(ctx context.Context, o Options) (*Subscription, error) { panic("not yet") }

// Deliveries implements [backend.Subscription].
func (s *Subscription) Deliveries() <-chan backend.Delivery { panic("not yet") }

// Stop implements [backend.Subscription].
func (s *Subscription) Stop(ctx context.Context) error { panic("not yet") }

// Done is closed once the subscription has stopped for whatever reason.
func (s *Subscription) Done() <-chan struct{} { panic("not yet") }

func (s *Subscription) wake(w Wake) { panic("not yet") }
