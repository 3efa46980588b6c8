package operator

import (
	"context"
	"database/sql"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// DeadLetter is a message that a group has given up.
type DeadLetter struct {
	Tenant tenants.ID
	// Topic, PartitionKey and ID name it on the dead-letter topic: what Redrive
	// wants.
	Topic, PartitionKey, ID string
	Offset                  uint64
	backend.Failure
}

// Cursor is the row's place in the listing.
func (d DeadLetter) Cursor() Cursor {
	return Cursor{Topic: d.Topic, PartitionKey: d.PartitionKey, Offset: d.Offset}
}

// deadHeads is how many rows at the beginning of a topic tell whether it holds
// dead letters.
const deadHeads = 100

// DeadLetters lists the dead letters of a topic by partition key and offset, or
// with the topic "" of all topics that have one among their first 100 messages.
func (o *Operator) DeadLetters(ctx context.Context, tenant tenants.ID, p Page) ([]DeadLetter, error) {
	if err := o.check(backend.CheckTenant(tenant), p.check()); err != nil {
		return nil, err
	}
	topics, err := o.topicsOf(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	var list []DeadLetter
	for _, topic := range topics {
		if p.Topic == "" {
			found, err := o.hasDead(ctx, tenant, topic)
			if err != nil {
				return nil, err
			}
			if !found {
				continue
			}
		}
		q := newQuery(stmtDead, string(tenant), topic)
		if c := p.After; c.Topic == topic && c.PartitionKey != "" {
			q.add(deadBehind, c.PartitionKey, c.PartitionKey, c.Offset)
		}
		rows, err := read(ctx, o.db, q.add(deadPage, p.limit()-len(list)), (*storedRow).dest)
		if err != nil {
			return nil, wrap("list the dead letters", tenant, topic, err)
		}
		for _, r := range rows {
			list = append(list, DeadLetter{
				Tenant: tenant, Topic: topic, PartitionKey: r.key, ID: r.id, Offset: r.offset, Failure: *r.failure(),
			})
		}
		if len(list) == p.limit() {
			break
		}
	}
	return list, nil
}

// hasDead looks at the beginning of a topic.
func (o *Operator) hasDead(ctx context.Context, tenant tenants.ID, topic string) (bool, error) {
	n, _, err := readOne(ctx, o.db, newQuery(stmtHasDead, string(tenant), topic, deadHeads), single[int])
	return n > 0, wrap("look for dead letters", tenant, topic, err)
}

// countDead counts those that a group has failed, or all with the group "", among
// the first messages of a topic.
func (o *Operator) countDead(ctx context.Context, tenant tenants.ID, topic, group string, bound int) (Count, error) {
	type row struct{ read, dead int }
	q := newQuery(stmtCountDead, group, group, string(tenant), topic, bound+1)
	r, _, err := readOne(ctx, o.db, q, func(r *row) []any { return []any{&r.read, &r.dead} })
	return Count{N: min(r.dead, bound), AtLeast: r.read > bound && r.dead > 0}, err
}

// storedRow is a row of queue_messages in messageColumns.
type storedRow struct {
	key, id        string
	offset         uint64
	publishedAt    int64
	targetGroup    string
	originalTopic  string
	originalID     string
	originalOffset uint64
	failedGroup    string
	failedAt       int64
	failures       int
	lastError      sql.Null[string]
}

func (r *storedRow) dest() []any {
	return []any{
		&r.key, &r.offset, &r.id, &r.publishedAt, &r.targetGroup, &r.originalTopic, &r.originalID, &r.originalOffset,
		&r.failedGroup, &r.failedAt, &r.failures, &r.lastError,
	}
}

// failure is nil but for dead letters.
func (r *storedRow) failure() *backend.Failure {
	if r.originalTopic == "" {
		return nil
	}
	return &backend.Failure{
		OriginalTopic: r.originalTopic, OriginalID: r.originalID, OriginalOffset: r.originalOffset, Group: r.failedGroup,
		Attempts: r.failures, LastError: r.lastError.V, FailedAt: at(r.failedAt),
	}
}
