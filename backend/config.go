package backend

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// Ordering says what a failed message holds up.
type Ordering int

const (
	// Strict delivers the messages of a partition one at a time and in order;
	// a failed message holds up its partition until it succeeds or is
	// dead-lettered.
	Strict Ordering = iota
	// Relaxed starts the messages of a partition in order but several at once;
	// a failed message does not hold up later ones, up to 10,000 of them settled
	// ahead of it.
	Relaxed
)

// ParseOrdering accepts "strict" and "relaxed".
func ParseOrdering(name string) (Ordering, error) {
	switch name {
	case "strict":
		return Strict, nil
	case "relaxed":
		return Relaxed, nil
	}
	return 0, &FieldError{Field: "ordering", Value: quote(name), Rule: `want "strict" or "relaxed"`}
}

func (o Ordering) String() string {
	switch o {
	case Strict:
		return "strict"
	case Relaxed:
		return "relaxed"
	}
	return fmt.Sprintf("Ordering(%d)", int(o))
}

// StartPosition is where a group's first subscription begins.
type StartPosition int

const (
	// Earliest begins with the oldest message still stored.
	Earliest StartPosition = iota
	// Latest begins behind what was stored when the group first subscribed.
	Latest
)

// ParseStartPosition accepts "earliest" and "latest".
func ParseStartPosition(name string) (StartPosition, error) {
	switch name {
	case "earliest":
		return Earliest, nil
	case "latest":
		return Latest, nil
	}
	return 0, &FieldError{Field: "start", Value: quote(name), Rule: `want "earliest" or "latest"`}
}

func (p StartPosition) String() string {
	switch p {
	case Earliest:
		return "earliest"
	case Latest:
		return "latest"
	}
	return fmt.Sprintf("StartPosition(%d)", int(p))
}

// Defaults of [SubscriptionConfig].
const (
	DefaultMaxInFlight       = 128
	DefaultBatchSize         = 100
	DefaultPollInterval      = 50 * time.Millisecond
	DefaultVisibilityTimeout = 30 * time.Second
	DefaultLeaseDuration     = 15 * time.Second
	DefaultMaxAttempts       = 10
	DefaultInitialBackoff    = 500 * time.Millisecond
	DefaultMaxBackoff        = time.Minute
	DefaultMultiplier        = 2.0
	DefaultDeadLetterSuffix  = "_dlq"
)

// Bounds of [SubscriptionConfig].
const (
	MaxMaxInFlight   = 100_000
	MaxBatchSize     = 1_000
	MinDuration      = time.Millisecond
	MaxPollInterval  = time.Minute
	MinLeaseDuration = 50 * time.Millisecond
	MaxDuration      = 365 * 24 * time.Hour
	MaxMaxAttempts   = 1_000
	MaxMultiplier    = 100.0
	MaxTenantWeight  = 1_000
)

// MaxTenantMetrics bounds the TenantMetrics of the backends' Params.
const MaxTenantMetrics = 1_000

// SubscriptionConfig says how a group consumes a topic. The zero value of
// every field but Group means its default; [SubscriptionConfig.WithDefaults]
// fills them in and [SubscriptionConfig.Validate] checks the bounds.
type SubscriptionConfig struct {
	// Group is the consumer group. Required.
	Group string
	// SubscriberName is this process's name within the group, as operators see
	// it. Default: host name, process id and a random suffix.
	SubscriberName string

	// Ordering is Strict by default.
	Ordering Ordering
	// MaxInFlight is the number of deliveries out at once, all partitions
	// together. Where the queue has several tenants, the last eighth is kept for
	// those with less than that in flight: one whose handlers are slow does not
	// take them all. Default 128, at most 100,000.
	MaxInFlight int
	// BatchSize is the number of messages fetched of one partition at a time.
	// Default 100, at most 1,000.
	BatchSize int

	// PollInterval is the time between looks for work while there is none.
	// Work published in the same process is noticed at once. Default 50 ms,
	// 1 ms to 1 min. With more than 1,000 tenants the pace is lowered so that
	// idling stays below 25 statements a second.
	PollInterval time.Duration
	// VisibilityTimeout is the time a delivery may stay unsettled before the
	// attempt counts as failed. Default 30 s, 1 ms to 1 year.
	VisibilityTimeout time.Duration
	// LeaseDuration is the time after which the partitions of a process that
	// vanished go to another one. Default 15 s, 50 ms to 1 year.
	LeaseDuration time.Duration
	// LeaseRenewal is the time between renewals; below LeaseDuration.
	// Default a third of it.
	LeaseRenewal time.Duration

	Retry      RetryPolicy
	DeadLetter DeadLetterPolicy

	// Start applies to a group's first subscription to (tenant, topic).
	// Default Earliest.
	Start StartPosition

	// TenantWeights gives tenants more than an equal share of the deliveries
	// while several have work. Default 1 each, at most 1,000.
	TenantWeights map[tenants.ID]int
}

// RetryPolicy spaces the attempts at a message. The wait before attempt n+1 is
// random between 0 and min(MaxBackoff, InitialBackoff × Multiplier^(n-1))
// ("full jitter").
type RetryPolicy struct {
	// MaxAttempts, the first included. Default 10, at most 1,000. A message that
	// takes its process down may be delivered once more: its first delivery was
	// not on record.
	MaxAttempts int
	// InitialBackoff bounds the first wait. Default 500 ms, at least 1 ms.
	InitialBackoff time.Duration
	// MaxBackoff bounds every wait. Default 1 min, not below InitialBackoff.
	MaxBackoff time.Duration
	// Multiplier is 1 to 100. Default 2.
	Multiplier float64
}

// DeadLetterPolicy says where a message goes that is given up.
type DeadLetterPolicy struct {
	// Disabled drops such messages, with a log line, instead of keeping them.
	Disabled bool
	// Suffix is appended to the topic. Default "_dlq".
	Suffix string
}

// WithDefaults returns c with every zero field set to its default.
func (c SubscriptionConfig) WithDefaults() SubscriptionConfig {
	setDefault(&c.MaxInFlight, DefaultMaxInFlight)
	setDefault(&c.BatchSize, DefaultBatchSize)
	setDefault(&c.PollInterval, DefaultPollInterval)
	setDefault(&c.VisibilityTimeout, DefaultVisibilityTimeout)
	setDefault(&c.LeaseDuration, DefaultLeaseDuration)
	setDefault(&c.LeaseRenewal, c.LeaseDuration/3)
	setDefault(&c.Retry.MaxAttempts, DefaultMaxAttempts)
	setDefault(&c.Retry.InitialBackoff, DefaultInitialBackoff)
	setDefault(&c.Retry.MaxBackoff, max(DefaultMaxBackoff, c.Retry.InitialBackoff))
	setDefault(&c.Retry.Multiplier, DefaultMultiplier)
	setDefault(&c.DeadLetter.Suffix, DefaultDeadLetterSuffix)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks a configuration whose defaults are filled in, together with
// the topic it is for. The error is a [FieldError].
func (c SubscriptionConfig) Validate(topic string) error {
	if err := CheckTopic(topic); err != nil {
		return err
	}
	if err := CheckGroup(c.Group); err != nil {
		return err
	}
	if c.SubscriberName != "" {
		if err := CheckSubscriberName(c.SubscriberName); err != nil {
			return err
		}
	}
	for _, err := range []error{
		checkRange("ordering", c.Ordering, Strict, Relaxed),
		checkRange("start", c.Start, Earliest, Latest),
		checkRange("max in flight", c.MaxInFlight, 1, MaxMaxInFlight),
		checkRange("batch size", c.BatchSize, 1, MaxBatchSize),
		checkRange("poll interval", c.PollInterval, MinDuration, MaxPollInterval),
		checkRange("visibility timeout", c.VisibilityTimeout, MinDuration, MaxDuration),
		checkRange("lease duration", c.LeaseDuration, MinLeaseDuration, MaxDuration),
		checkRange("lease renewal", c.LeaseRenewal, MinDuration, MaxDuration),
		checkRange("retry max attempts", c.Retry.MaxAttempts, 1, MaxMaxAttempts),
		checkRange("retry initial backoff", c.Retry.InitialBackoff, MinDuration, MaxDuration),
		checkRange("retry max backoff", c.Retry.MaxBackoff, c.Retry.InitialBackoff, MaxDuration),
		checkRange("retry multiplier", c.Retry.Multiplier, 1, MaxMultiplier),
	} {
		if err != nil {
			return err
		}
	}
	if c.LeaseRenewal >= c.LeaseDuration {
		return &FieldError{
			Field: "lease renewal", Value: c.LeaseRenewal.String(),
			Rule: fmt.Sprintf("must be below the lease duration of %v; a third of it leaves room for retries", c.LeaseDuration),
		}
	}
	for tenant, weight := range c.TenantWeights {
		if err := checkRange("tenant weight of "+quote(string(tenant)), weight, 1, MaxTenantWeight); err != nil {
			return err
		}
	}
	if !c.DeadLetter.Disabled {
		return CheckDeadLetterTopic(topic, c.DeadLetter.Suffix)
	}
	return nil
}

func checkRange[T int | Ordering | StartPosition | time.Duration | float64](field string, v, low, high T) error {
	if v >= low && v <= high { // NaN is neither
		return nil
	}
	return &FieldError{Field: field, Value: fmt.Sprint(v), Rule: fmt.Sprintf("want %v to %v", low, high)}
}

// CheckDelay checks the duration of a Postpone or Extend.
func CheckDelay(d time.Duration) error {
	return checkRange("delay", d, MinDuration, MaxDuration)
}

// DeadLetterTopic is the topic that dead letters of topic go to.
func (c SubscriptionConfig) DeadLetterTopic(topic string) string {
	return topic + c.DeadLetter.Suffix
}

// Backoff returns the upper bound of the wait after the given failed attempt,
// counted from 1. Callers draw uniformly below it.
func (p RetryPolicy) Backoff(attempt int) time.Duration {
	bound := float64(p.InitialBackoff)
	for range max(attempt, 1) - 1 {
		bound *= p.Multiplier
		if bound >= float64(p.MaxBackoff) {
			return p.MaxBackoff
		}
	}
	return min(time.Duration(bound), p.MaxBackoff)
}

func quote(s string) string {
	const limit = 40
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
