package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Purge implements [engine.Store]. It looks at many tenants with plain reads
// and removes per tenant by primary keys, on the condition that nothing has
// changed since. Each look finds at most maxRemove rows a list of tenants.
func (s *store) Purge(ctx context.Context, list []tenants.ID) error {
	for chunk := range slices.Chunk(list, listTenants) {
		for _, purge := range []func(context.Context, []tenants.ID) error{
			s.purgeBeats, s.purgeLeases, s.purgeMarks, s.purgeStates, s.purgeGroups,
		} {
			if err := purge(ctx, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// purgeRows reads rows of several tenants and hands them over tenant by tenant.
func purgeRows[T any](
	ctx context.Context, s *store, list []tenants.ID, q *query, dest func(*tenants.ID, *T) []any, remove func(tenants.ID, []T) error,
) error {
	var tenant tenants.ID
	var row T
	rows := make(map[tenants.ID][]T)
	err := s.each(ctx, q, dest(&tenant, &row), func() { clear(rows) }, func() { rows[tenant] = append(rows[tenant], row) })
	if err != nil {
		return s.wrap(list[0], "look for leftovers", err)
	}
	for _, tenant := range list {
		if len(rows[tenant]) == 0 {
			continue
		}
		if err := remove(tenant, rows[tenant]); err != nil {
			return s.wrap(tenant, fmt.Sprintf("remove %d leftovers", len(rows[tenant])), err)
		}
	}
	return nil
}

func (s *store) purgeBeats(ctx context.Context, list []tenants.ID) error {
	q := newQuery(len(list), stmtDeadBeats, s.group, s.topic).in(anys(list)...).add(limitRows, maxRemove)
	return purgeRows(ctx, s, list, q,
		func(tenant *tenants.ID, name *string) []any { return []any{tenant, name} },
		func(tenant tenants.ID, names []string) error { return s.bury(ctx, tenant, names) })
}

// purgeLeases removes leases that ended two lease durations ago, or were given
// back, in partitions without messages. The epoch keeps those that somebody has
// taken since. Suspects go with them: what a vanished owner may have handed
// over is stored or settled.
func (s *store) purgeLeases(ctx context.Context, list []tenants.ID) error {
	q := newQuery(len(list), stmtDeadLeases, s.group, s.topic, 2*millis(s.cfg.LeaseDuration)).in(anys(list)...).
		add(noMessage).add(limitRows, maxRemove)
	return purgeRows(ctx, s, list, q,
		func(tenant *tenants.ID, l *engine.Lease) []any { return []any{tenant, &l.Key, &l.Epoch} },
		func(tenant tenants.ID, leases []engine.Lease) error {
			for rows := range chunksOf(leases, rowOfLease) {
				q := leaseList.query(s.q.joins(), "DELETE", rows, string(tenant), s.group, s.topic).add(ifOver)
				if err := s.exec(ctx, q); err != nil {
					return err
				}
			}
			return nil
		})
}

// purgeMarks removes watermarks of partitions without messages and lease. One
// that was used since the look has moved; one that is about to be has a lease.
func (s *store) purgeMarks(ctx context.Context, list []tenants.ID) error {
	q := newQuery(len(list), stmtDeadMarks, s.group, s.topic).in(anys(list)...).add(noMessage+noLease).add(limitRows, maxRemove)
	return purgeRows(ctx, s, list, q,
		func(tenant *tenants.ID, m *mark) []any { m.group = s.group; return []any{tenant, &m.key, &m.acked} },
		func(tenant tenants.ID, found []mark) error {
			return s.q.inTx(ctx, func(tx *sql.Tx) error {
				leased, err := s.leased(ctx, tx, tenant, found, lockInShare)
				if err != nil {
					return err
				}
				idle := slices.DeleteFunc(slices.Clone(found), func(m mark) bool { return leased[mark{key: m.key, group: m.group}] })
				return s.dropMarks(ctx, tx, tenant, idle)
			})
		})
}

// purgeStates removes what is known of messages that are gone.
func (s *store) purgeStates(ctx context.Context, list []tenants.ID) error {
	q := newQuery(len(list), stmtDeadStates, s.group, s.topic).in(anys(list)...).add(noMessage+noLease).add(limitRows, maxRemove)
	return purgeRows(ctx, s, list, q,
		func(tenant *tenants.ID, st *rowKey) []any { return []any{tenant, &st.key, &st.number} },
		func(tenant tenants.ID, rows []rowKey) error {
			return s.q.inTx(ctx, func(tx *sql.Tx) error { return s.dropStateRows(ctx, tx, tenant, rows) })
		})
}

// purgeGroups drops other groups whose subscribers have been away for longer
// than the retention: messages would wait for them for ever.
func (s *store) purgeGroups(ctx context.Context, list []tenants.ID) error {
	q := newQuery(len(list), stmtAbsent, s.topic, s.group, millis(s.q.cfg.GroupRetention)).in(anys(list)...).add(limitRows, maxRead) // the rest at the next purge
	return purgeRows(ctx, s, list, q,
		func(tenant *tenants.ID, group *string) []any { return []any{tenant, group} },
		func(tenant tenants.ID, groups []string) error {
			for _, group := range groups {
				if err := s.q.dropGroup(ctx, tenant, s.topic, group, s.q.cfg.GroupRetention); err != nil {
					return err
				}
				s.q.metrics.groupsExpired.Inc(1)
				s.q.log.Warn("dropped a consumer group that was away for longer than the group retention",
					zap.String("tenant", string(tenant)), zap.String("topic", s.topic), zap.String("group", group),
					zap.Duration("retention", s.q.cfg.GroupRetention))
			}
			return nil
		})
}
