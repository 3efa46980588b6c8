package operator

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// MessageDetail is all that is stored of a message.
type MessageDetail struct {
	Tenant                  tenants.ID
	Topic, PartitionKey, ID string
	Offset                  uint64
	PublishedAt             time.Time
	PublishID               uint64 // the same for what one transaction has published
	Payload                 []byte
	Metadata                string // JSON
	// TargetGroup is the only group that a redriven message goes to; "" for all.
	TargetGroup string
	// OriginalID of a redriven message or a dead letter.
	OriginalID string
	Failure    *backend.Failure // of a dead letter; nil for others
	Groups     []MessageState   // of the groups registered, by name
}

// MessageState is where a group stands with a message.
type MessageState struct {
	Group   string
	Paused  bool // nothing is delivered to the group
	Settled bool // the group is through with it, or it does not go there
	// Stored tells that the fields below, which are zero otherwise, come from a
	// delivery state: there is one once the message has failed, was postponed, or
	// was settled while one before it was not.
	Stored     bool
	Postponed  bool
	Attempts   int // charged to the retry policy
	Deliveries int // times it may have been handed over
	// VisibleIn is the time until it may be delivered again; 0 or negative: now.
	VisibleIn time.Duration
	LastError string
	// Suspect tells that an owner which vanished may have been handed the message
	// when it did.
	Suspect bool
	// InHand tells that the owner who holds the lease now may have been handed the
	// message. A suspect that is in hand was taken over: the new owner may be at
	// it. One that is not waits for a new owner, or for this one to come to it.
	InHand bool
	// Owner has the partition's lease or had it last, and Lease is its state.
	Owner string
	Lease LeaseState
}

// Message shows a message with its payload, which may be large, and where every
// group stands with it. It returns [backend.ErrNotFound] for one that is not
// stored: it was never published, or every group has settled it.
func (o *Operator) Message(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) (MessageDetail, error) {
	if err := o.check(checkIdentity(tenant, topic, partitionKey, id)); err != nil {
		return MessageDetail{}, err
	}
	d, err := o.message(ctx, tenant, topic, partitionKey, id)
	if err != nil {
		return MessageDetail{}, fmt.Errorf("show message %q of tenant %q, topic %q, partition key %q: %w", id, tenant, topic, partitionKey, err)
	}
	return d, nil
}

func checkIdentity(tenant tenants.ID, topic, partitionKey, id string) error {
	for _, err := range []error{
		backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckPartitionKey(partitionKey), backend.CheckMessageID(id),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Operator) message(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) (MessageDetail, error) {
	type row struct {
		storedRow
		payload   []byte
		metadata  string
		publishID uint64
	}
	q := newQuery(stmtMessage, string(tenant), topic, partitionKey, id)
	r, found, err := readOne(ctx, o.db, q, func(r *row) []any { return append(r.dest(), &r.payload, &r.metadata, &r.publishID) })
	if err == nil && !found {
		err = backend.ErrNotFound
	}
	if err != nil {
		return MessageDetail{}, err
	}
	d := MessageDetail{
		Tenant: tenant, Topic: topic, PartitionKey: r.key, ID: r.id, Offset: r.offset, PublishedAt: at(r.publishedAt), PublishID: r.publishID,
		Payload: r.payload, Metadata: r.metadata, TargetGroup: r.targetGroup, OriginalID: r.originalID, Failure: r.failure(),
	}
	groups, err := o.registrations(ctx, o.db, tenant, topic)
	if err != nil {
		return MessageDetail{}, err
	}
	d.Groups = make([]MessageState, len(groups))
	for i, g := range groups {
		if d.Groups[i], err = o.messageState(ctx, tenant, topic, g, &r.storedRow); err != nil {
			return MessageDetail{}, fmt.Errorf("group %q: %w", g.group, err)
		}
	}
	return d, nil
}

func (o *Operator) messageState(ctx context.Context, tenant tenants.ID, topic string, g registration, m *storedRow) (MessageState, error) {
	type row struct {
		MessageState
		delay     int64
		lastError sql.Null[string]
	}
	keys := []string{m.key}
	positions, err := o.positions(ctx, tenant, topic, g, keys)
	if err != nil {
		return MessageState{}, err
	}
	leases, err := o.leasesOf(ctx, tenant, pair{topic, g.group}, keys)
	if err != nil {
		return MessageState{}, err
	}
	r, found, err := readOne(ctx, o.db, newQuery(stmtState, string(tenant), g.group, topic, m.key, m.offset), func(r *row) []any {
		return []any{&r.Settled, &r.Postponed, &r.Attempts, &r.Deliveries, &r.delay, &r.lastError}
	})
	if err != nil {
		return MessageState{}, err
	}
	s, lease := r.MessageState, leases[m.key]
	s.Group, s.Paused, s.Stored, s.LastError = g.group, g.paused, found, r.lastError.V
	s.Settled = s.Settled || m.offset <= positions[m.key] || m.targetGroup != "" && m.targetGroup != g.group
	if found && !s.Settled {
		s.VisibleIn = fromMillis(r.delay)
	}
	suspect := lease.Suspect
	if lease.State == Expired { // what it had claimed is suspect to whoever takes it
		suspect = max(suspect, lease.Claimed)
	}
	s.Suspect = !s.Settled && m.offset <= suspect
	s.InHand = !s.Settled && lease.State == Held && m.offset <= lease.Claimed
	s.Owner, s.Lease = lease.Owner, lease.State
	return s, nil
}

// DeleteMessage removes a message and what all groups know of it, in one
// transaction: to every group it is as if settled. It takes the partition from
// subscribers that have its lease, who may have the message in memory and would
// deliver it again from there: what they are working on in the partition,
// this message included, fails to settle with [backend.ErrLeaseLost], and the
// others of it are delivered again, to whom no attempt is charged for it. It
// returns [backend.ErrNotFound] for a message that is not stored.
func (o *Operator) DeleteMessage(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	if err := o.check(checkIdentity(tenant, topic, partitionKey, id)); err != nil {
		return err
	}
	err := o.CheckSchema(ctx)
	if err == nil {
		err = o.deleteMessage(ctx, tenant, topic, partitionKey, id)
	}
	if err != nil {
		return fmt.Errorf("delete message %q of tenant %q, topic %q, partition key %q: %w", id, tenant, topic, partitionKey, err)
	}
	return nil
}

func (o *Operator) deleteMessage(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	offset, found, err := readOne(ctx, o.db, newQuery(stmtMessageAt, string(tenant), topic, partitionKey, id), single[uint64])
	if err == nil && !found {
		err = backend.ErrNotFound
	}
	if err != nil {
		return err
	}
	groups, err := o.groupsWithRows(ctx, tenant, topic)
	if err != nil {
		return err
	}
	return o.inTx(ctx, func(tx *sql.Tx) error {
		// Leases first, as settlements do: none is under way from here on.
		for _, group := range groups {
			if _, err := newQuery(stmtEndLease+endLeaseSet+ofLease, string(tenant), group, topic, partitionKey).exec(ctx, tx); err != nil {
				return fmt.Errorf("end the lease of group %q: %w", group, err)
			}
		}
		for _, group := range groups {
			if _, err := newQuery(stmtDropState, string(tenant), group, topic, partitionKey, offset).exec(ctx, tx); err != nil {
				return fmt.Errorf("delete the state of group %q: %w", group, err)
			}
		}
		_, err := newQuery(stmtDropMessage, string(tenant), topic, partitionKey, offset).exec(ctx, tx)
		return err
	})
}

// groupsWithRows are the groups registered for a topic and those that have rows
// though they are not, by name.
func (o *Operator) groupsWithRows(ctx context.Context, tenant tenants.ID, topic string) ([]string, error) {
	var names []string
	registered, err := o.registrations(ctx, o.db, tenant, topic)
	if err != nil {
		return nil, err
	}
	for _, r := range registered {
		names = append(names, r.group)
	}
	for _, statement := range []string{stmtLeasePair, stmtStatePair} {
		pairs, err := o.pairs(ctx, tenant, statement, Page{Topic: topic})
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			names = append(names, p.group)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
