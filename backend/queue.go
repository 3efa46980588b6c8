package backend

import (
	"context"
	"database/sql"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// Queue stores messages and hands them out. All methods are safe for
// concurrent use.
type Queue interface {
	Publisher
	Subscriber

	// Close stops every subscription, waits for them within ctx and releases
	// what the queue opened itself. It is idempotent. When ctx ends first it
	// returns an error that counts the deliveries cut off.
	Close(ctx context.Context) error
}

// Publisher is the writing half of a [Queue].
type Publisher interface {
	// Publish stores messages: all or nothing per tenant, receipts in the
	// order given. An error that is not a [FieldError] may leave the outcome
	// unknown; publishing the same ids again is safe.
	Publish(ctx context.Context, msgs ...Message) ([]Receipt, error)

	// PublishTx stores messages of one tenant inside the caller's transaction
	// (an outbox): they exist once and only if tx commits. It returns
	// ErrNotSupported on a backend without SQL. After a database error roll tx
	// back.
	PublishTx(ctx context.Context, tx *sql.Tx, msgs ...Message) ([]Receipt, error)
}

// Subscriber is the reading half of a [Queue].
type Subscriber interface {
	// Subscribe registers the group for every tenant of the queue and starts
	// delivering. ctx bounds the call, not the subscription. It returns a
	// [FieldError] for a refused topic or configuration.
	Subscribe(ctx context.Context, topic string, cfg SubscriptionConfig) (Subscription, error)
}

// Subscription is one process's membership of a consumer group.
type Subscription interface {
	// Deliveries is closed after the last delivery once stopped.
	Deliveries() <-chan Delivery

	// Stop ends the subscription: no new deliveries, those in flight may
	// settle until ctx ends, then their contexts are cancelled, and all leases
	// are released. Interrupted deliveries spend no attempt. It is idempotent,
	// and returns an error that counts the deliveries cut off.
	Stop(ctx context.Context) error
}

// Delivery is one attempt to handle one message. Exactly one of Ack, Nack,
// Postpone and Reject settles it; a second returns ErrSettled. Each returns
// nil once the outcome is durable, and ErrLeaseLost when this attempt has been
// superseded. All methods are safe for concurrent use.
type Delivery interface {
	Message() Message

	// Attempt counts the times the message may have been handed to a handler
	// of this group, this time included: 1 for the first. A delivery that was
	// postponed, or interrupted by Stop, is not counted.
	Attempt() int

	// Context ends with the lease, the visibility timeout or the subscription;
	// context.Cause tells which.
	Context() context.Context

	// Ack settles the message for this group.
	Ack(ctx context.Context) error

	// Nack reports a failed attempt. The message is delivered again after a
	// backoff, or dead-lettered when the retry policy's attempts are spent.
	Nack(ctx context.Context, cause error) error

	// Postpone makes the whole partition wait for d behind this message,
	// whatever the ordering. No attempt is spent. d is 1 ms to 1 year.
	Postpone(ctx context.Context, d time.Duration) error

	// Reject dead-letters the message now.
	Reject(ctx context.Context, cause error) error

	// Extend makes the visibility timeout end d from now, however long it had
	// left. d is 1 ms to 1 year. ErrLeaseLost when it has ended already.
	Extend(ctx context.Context, d time.Duration) error

	// Failure tells how a message of a dead-letter topic failed.
	Failure() (Failure, bool)
}

// Failure is kept with a dead letter.
type Failure struct {
	OriginalTopic  string
	OriginalID     string
	OriginalOffset uint64
	Group          string    // the consumer group that gave up
	Attempts       int       // attempts that group had made
	LastError      string    // of the last attempt, at most 16 KiB
	FailedAt       time.Time // the database's clock
}

// Admin is what operators do. Both the MySQL and the memory queue implement it.
// All methods are safe for concurrent use and return ErrNotFound when the
// message or group is not stored.
type Admin interface {
	// Pause stops deliveries of (tenant, topic) to a group in every process
	// within two seconds; deliveries in flight may settle. It is idempotent
	// and survives restarts.
	Pause(ctx context.Context, tenant tenants.ID, topic, group string) error
	// Resume undoes Pause.
	Resume(ctx context.Context, tenant tenants.ID, topic, group string) error
	// Redrive returns one dead letter, named by its complete identity on the
	// dead-letter topic, to its original topic, for the group that failed it
	// only and with all its attempts again.
	Redrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error
	// DropGroup forgets a group of (tenant, topic): messages no longer wait
	// for it.
	DropGroup(ctx context.Context, tenant tenants.ID, topic, group string) error
}
