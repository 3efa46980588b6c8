package backend

import (
	"context"
	"time"
)

// HealthReporter is what a health check asks. Both the MySQL and the memory
// queue implement it.
type HealthReporter interface {
	// Health looks at the store, within ctx, and at every subscription. It is
	// safe for concurrent use and, but for the store, needs no I/O. Give it a
	// deadline of a second or two: a store that does not answer is found out by
	// it.
	Health(ctx context.Context) Health
}

// Health is the state of a [Queue] as one process sees it. What is too old or too
// much is for the caller to say: an idle process is well, and so is one whose
// database was away for a moment.
type Health struct {
	// Store is nil if the store has answered, [ErrClosed] once the queue is
	// closed, and otherwise why it has not. The memory queue's is always there.
	Store error
	// Subscriptions that have neither stopped nor begun to, in order of topic and
	// group.
	Subscriptions []SubscriptionHealth
}

// SubscriptionHealth is the state of one [Subscription]. All times are the
// process's own, and carry its monotonic clock.
type SubscriptionHealth struct {
	Topic, Group string

	// PollInterval is the time between two looks for work while there is none,
	// which no other pause between two looks exceeds by more than 1 s. It is that
	// of [SubscriptionConfig], or longer with more than 1,000 tenants.
	PollInterval time.Duration
	// TickedAt is when the subscription last began to look for work, whether that
	// went well or not. If it stands still for much longer than PollInterval, the
	// loop hangs: the store neither answers nor fails, or the process is stuck.
	TickedAt time.Time
	// PolledAt is when a look for work last succeeded. If it stands still while
	// TickedAt moves, the store fails. Until the first look both are the time of
	// Subscribe.
	PolledAt time.Time
	// OverdueLeases are leases held whose renewal is overdue by more than half
	// the time that they had left when it was due: if nothing changes, their
	// partitions are lost and delivered elsewhere.
	OverdueLeases int
}
