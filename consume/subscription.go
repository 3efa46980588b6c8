package consume

import (
	"cmp"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Subscription says what a handler consumes and how. Topic and Group are
// required; every other field is documented at [backend.SubscriptionConfig] and
// overrides the default of the same name in [Params]. A zero field overrides
// nothing, so [backend.Strict], [backend.Earliest] and an enabled dead letter
// are what a handler gets unless the defaults say otherwise.
type Subscription struct {
	Topic string
	Group string

	SubscriberName string
	Ordering       backend.Ordering
	MaxInFlight    int
	BatchSize      int

	PollInterval      time.Duration
	VisibilityTimeout time.Duration
	LeaseDuration     time.Duration
	// LeaseRenewal is a third of LeaseDuration when only that is overridden.
	LeaseRenewal time.Duration

	// HandlerTimeout is the time a handler may take for an attempt. When it is
	// over the context of the handler ends with the cause [ErrHandlerTimeout]
	// and the delivery is not extended any more: the message is handed out again
	// within one visibility timeout, or goes to the dead letters, with an attempt
	// spent, even if the handler never returns; one that does not heed its
	// context may then run beside the next attempt. What a handler returns after
	// its time is a failed attempt, whatever it is. 1 ms to 1 year; 0 means that
	// of [Params].
	HandlerTimeout time.Duration

	Retry      backend.RetryPolicy
	DeadLetter backend.DeadLetterPolicy
	Start      backend.StartPosition

	// TenantWeights replaces the default weights as a whole.
	TenantWeights map[tenants.ID]int
}

// config lays the subscription over defaults and fills in the rest.
func (s Subscription) config(defaults backend.SubscriptionConfig) backend.SubscriptionConfig {
	c := defaults
	c.Group = cmp.Or(s.Group, c.Group)
	c.SubscriberName = cmp.Or(s.SubscriberName, c.SubscriberName)
	c.Ordering = cmp.Or(s.Ordering, c.Ordering)
	c.MaxInFlight = cmp.Or(s.MaxInFlight, c.MaxInFlight)
	c.BatchSize = cmp.Or(s.BatchSize, c.BatchSize)
	c.PollInterval = cmp.Or(s.PollInterval, c.PollInterval)
	c.VisibilityTimeout = cmp.Or(s.VisibilityTimeout, c.VisibilityTimeout)
	if s.LeaseDuration != 0 {
		c.LeaseDuration, c.LeaseRenewal = s.LeaseDuration, 0
	}
	c.LeaseRenewal = cmp.Or(s.LeaseRenewal, c.LeaseRenewal)
	c.Retry.MaxAttempts = cmp.Or(s.Retry.MaxAttempts, c.Retry.MaxAttempts)
	c.Retry.InitialBackoff = cmp.Or(s.Retry.InitialBackoff, c.Retry.InitialBackoff)
	c.Retry.MaxBackoff = cmp.Or(s.Retry.MaxBackoff, c.Retry.MaxBackoff)
	c.Retry.Multiplier = cmp.Or(s.Retry.Multiplier, c.Retry.Multiplier)
	c.DeadLetter.Disabled = s.DeadLetter.Disabled || c.DeadLetter.Disabled
	c.DeadLetter.Suffix = cmp.Or(s.DeadLetter.Suffix, c.DeadLetter.Suffix)
	c.Start = cmp.Or(s.Start, c.Start)
	if s.TenantWeights != nil {
		c.TenantWeights = s.TenantWeights
	}
	return c.WithDefaults()
}
