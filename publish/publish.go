// Package publish is the only door through which services publish. The tenant
// is an argument of every call and no part of a message, so a message cannot
// claim another tenant than the one its caller answers for.
package publish

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// QueueNameKey is the metadata key that every published message carries its
// tenant under, for consumers that know tenants by their business name.
const QueueNameKey = "queue_name"

// Message is what a caller wants published. Payload and Metadata are read
// during the call only and never changed.
type Message struct {
	// ID makes publishing idempotent: within (tenant, topic, partition key) a
	// second message of the same id is not stored while the first one is. Valid
	// UTF-8, 1 to 255 characters, no NUL, no trailing space. [IntentID] makes
	// one out of what the message is about.
	ID string
	// PartitionKey is the unit of order within (tenant, topic). Same rule.
	PartitionKey string
	// Payload is opaque to the queue. The backend caps its size.
	Payload []byte
	// Metadata travels beside the payload; valid UTF-8. [QueueNameKey] is set
	// by the publisher and may be left out.
	Metadata map[string]string
}

// Publisher publishes messages of one tenant to one topic at a time. It is safe
// for concurrent use.
//
// Both methods refuse, before anything is written, a tenant that is empty,
// invalid or (see [WithTenants]) not served, and metadata that names another
// tenant under [QueueNameKey]. No messages give no receipts, no error and no
// work for the queue. Errors are those of [backend.Publisher] otherwise.
type Publisher interface {
	// Publish stores all messages or none, and returns their receipts in order.
	// An error that is not a [backend.FieldError] may leave the outcome
	// unknown; publishing the same ids again is safe.
	Publish(ctx context.Context, tenant tenants.ID, topic string, msgs ...Message) ([]backend.Receipt, error)

	// PublishTx stores the messages inside the caller's transaction: they exist
	// once and only if tx commits. It returns [backend.ErrNotSupported] on a
	// backend without SQL. After a database error roll tx back.
	PublishTx(ctx context.Context, tx *sql.Tx, tenant tenants.ID, topic string, msgs ...Message) ([]backend.Receipt, error)
}

// Option changes what [New] makes.
type Option func(*publisher)

// WithTenants makes the publisher refuse tenants outside set with
// [tenants.ErrUnknownTenant]. Nobody would consume their messages. An empty set
// refuses every tenant; without this option every valid one is accepted.
func WithTenants(set tenants.Set) Option {
	return func(p *publisher) { p.admit = set.Check }
}

// New returns a publisher that writes to q, usually a [backend.Queue].
func New(q backend.Publisher, opts ...Option) Publisher {
	p := &publisher{queue: q, admit: func(tenants.ID) error { return nil }}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

type publisher struct {
	queue backend.Publisher
	admit func(tenants.ID) error
}

func (p *publisher) Publish(ctx context.Context, tenant tenants.ID, topic string, msgs ...Message) ([]backend.Receipt, error) {
	stamped, err := p.stamp(tenant, topic, msgs)
	if err != nil || len(stamped) == 0 {
		return nil, err
	}
	return p.queue.Publish(ctx, stamped...)
}

func (p *publisher) PublishTx(ctx context.Context, tx *sql.Tx, tenant tenants.ID, topic string, msgs ...Message) ([]backend.Receipt, error) {
	stamped, err := p.stamp(tenant, topic, msgs)
	if err != nil || len(stamped) == 0 {
		return nil, err
	}
	return p.queue.PublishTx(ctx, tx, stamped...)
}

// stamp puts tenant and topic on the messages. What else must hold of a message
// is checked by the backend, in one place for everyone.
func (p *publisher) stamp(tenant tenants.ID, topic string, msgs []Message) ([]backend.Message, error) {
	if err := backend.CheckTenant(tenant); err != nil {
		return nil, err
	}
	if err := p.admit(tenant); err != nil {
		return nil, err
	}
	stamped := make([]backend.Message, len(msgs))
	for i, m := range msgs {
		if name, ok := m.Metadata[QueueNameKey]; ok && name != string(tenant) {
			return nil, fmt.Errorf("message %d of %d: %w", i+1, len(msgs), &backend.FieldError{
				Field: fmt.Sprintf("metadata %q", QueueNameKey), Value: fmt.Sprintf("%.40q", name),
				Rule: fmt.Sprintf("the message is published for tenant %q; leave the key out, the publisher sets it", tenant),
			})
		}
		metadata := make(map[string]string, len(m.Metadata)+1)
		maps.Copy(metadata, m.Metadata)
		metadata[QueueNameKey] = string(tenant)
		stamped[i] = backend.Message{
			Tenant: tenant, Topic: topic, PartitionKey: m.PartitionKey, ID: m.ID,
			Payload: m.Payload, Metadata: metadata,
		}
	}
	return stamped, nil
}
