package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Pause implements [backend.Admin].
func (q *Queue) Pause(ctx context.Context, tenant tenants.ID, topic, group string) error {
	return q.onGroup(ctx, "pause", tenant, topic, group, func(t *topicTable) { t.groups[group].paused = true })
}

// Resume implements [backend.Admin].
func (q *Queue) Resume(ctx context.Context, tenant tenants.ID, topic, group string) error {
	return q.onGroup(ctx, "resume", tenant, topic, group, func(t *topicTable) { t.groups[group].paused = false })
}

// DropGroup implements [backend.Admin]. Stop the group's subscribers first:
// those that still run lose their leases and register the group again.
func (q *Queue) DropGroup(ctx context.Context, tenant tenants.ID, topic, group string) error {
	return q.onGroup(ctx, "drop", tenant, topic, group, func(t *topicTable) {
		t.dropGroup(group)
		q.tables.forget(tenant, topic)
	})
}

// onGroup runs do on the topic of a group that is registered.
func (q *Queue) onGroup(ctx context.Context, doing string, tenant tenants.ID, topic, group string, do func(*topicTable)) error {
	err := cmp.Or(backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group))
	if err != nil {
		return err
	}
	err = q.check(ctx)
	if err == nil {
		q.tables.mu.Lock()
		defer q.tables.mu.Unlock()
		t := q.tables.topic(tenant, topic)
		if g := t.group(group); g != nil && g.registered {
			do(t)
			return nil
		}
		err = backend.ErrNotFound
	}
	return fmt.Errorf("%s group: tenant %q, topic %q, group %q: %w", doing, tenant, topic, group, err)
}

// Redrive implements [backend.Admin]. The message comes back under its old id,
// or, where another message has that by now, under one derived from it;
// handlers see the old id either way.
func (q *Queue) Redrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	err := cmp.Or(backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckPartitionKey(partitionKey), backend.CheckMessageID(id))
	if err != nil {
		return err
	}
	var wake engine.Wake
	if err = q.check(ctx); err == nil {
		wake, err = q.tables.redrive(q.config.Now(), tenant, topic, partitionKey, id)
	}
	if err != nil {
		return fmt.Errorf("redrive: tenant %q, topic %q, partition key %q, id %q: %w", tenant, topic, partitionKey, id, err)
	}
	q.hub.Notify(wake)
	return nil
}
