package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Redrive implements [backend.Admin].
func (q *Queue) Redrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	ctx, leave, err := q.operate(ctx, backend.CheckTenant(tenant), backend.CheckTopic(topic),
		backend.CheckPartitionKey(partitionKey), backend.CheckMessageID(id))
	if err != nil {
		return err
	}
	defer leave()
	r := &redriving{Queue: q, tenant: tenant, from: identity{partition{topic, partitionKey}, id}}
	if err := r.redrive(ctx); err != nil {
		return fmt.Errorf("redrive message %q of tenant %q, topic %q, partition key %q: %w", id, tenant, topic, partitionKey, err)
	}
	q.hub.Notify(engine.Wake{Tenant: tenant, Topic: r.to.topic, Key: partitionKey, Offset: r.to.offset})
	return nil
}

// redriving is one call of Redrive.
type redriving struct {
	*Queue
	publication
	tenant tenants.ID
	from   identity
	to     row // zero until the dead letter has been seen
}

func (r *redriving) redrive(ctx context.Context) error {
	for fences := 1; ; fences++ {
		err := r.inTx(ctx, func(tx *sql.Tx) error { return r.run(ctx, tx) })
		fenced, ok := errors.AsType[*fencedError](err)
		if !ok || fences == maxFences {
			return err
		}
		r.metrics.fences.Inc(1)
		if fenced.shouldRaise(fences) {
			if err := r.raise(ctx, r.tenant, fenced); err != nil {
				return err
			}
		}
	}
}

// run moves the dead letter. Its reads before the insert are locking ones, so
// that the fence sees the watermarks as they are after it.
func (r *redriving) run(ctx context.Context, tx *sql.Tx) error {
	var offset, originalOffset uint64
	var metadata sqlBytes
	var originalTopic, originalID, group string
	var payload []byte
	found := false
	q := newQuery(0, stmtDeadLetter, string(r.tenant), r.from.topic, r.from.key, r.from.id)
	dest := []any{&offset, &payload, &metadata, &originalTopic, &originalID, &originalOffset, &group}
	if err := q.each(ctx, tx, dest, func() { found = true }); err != nil {
		return err
	}
	if !found {
		if r.to.topic != "" {
			return nil // an earlier run was committed though its answer was lost
		}
		return backend.ErrNotFound
	}
	if originalTopic == "" {
		return fmt.Errorf("%w: the message is no dead letter", backend.ErrNotFound)
	}
	r.to = row{identity: identity{partition{originalTopic, r.from.key}, originalID}, payload: payload, metadata: string(metadata)}

	taken := false
	var one int
	q = newQuery(0, stmtIDTaken, string(r.tenant), r.to.topic, r.to.key, r.to.id)
	if err := q.each(ctx, tx, []any{&one}, func() { taken = true }); err != nil {
		return err
	}
	if taken { // other groups still wait for the original
		r.to.id = derivedID(originalID, group, originalOffset)
	}
	q = newQuery(0, stmtRedrive, string(r.tenant), r.to.topic, r.to.key, r.to.id, payload, r.to.metadata, r.next(), group, originalID)
	if err := q.exec(ctx, tx); err != nil {
		return err
	}
	if err := readBack(ctx, tx, r.tenant, []*row{&r.to}, "", nil); err != nil {
		return err
	}
	if r.to.offset == 0 {
		return lagging(ctx, tx, r.tenant, []*row{&r.to})
	}
	drop := messageList.query(r.joins(), "DELETE", []rowKey{{r.from.key, offset}}, string(r.tenant), r.from.topic)
	if err := drop.exec(ctx, tx); err != nil {
		return err
	}
	return readFence(ctx, tx, r.tenant, map[partition]uint64{r.to.partition: r.to.offset})
}
