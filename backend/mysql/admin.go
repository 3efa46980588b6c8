package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

var (
	_ backend.Admin          = (*Queue)(nil)
	_ backend.HealthReporter = (*Queue)(nil)
)

// Pause implements [backend.Admin].
func (q *Queue) Pause(ctx context.Context, tenant tenants.ID, topic, group string) error {
	return q.setPaused(ctx, tenant, topic, group, true)
}

// Resume implements [backend.Admin].
func (q *Queue) Resume(ctx context.Context, tenant tenants.ID, topic, group string) error {
	return q.setPaused(ctx, tenant, topic, group, false)
}

func (q *Queue) setPaused(ctx context.Context, tenant tenants.ID, topic, group string, paused bool) error {
	ctx, leave, err := q.operate(ctx, backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group))
	if err != nil {
		return err
	}
	defer leave()
	if _, err := q.registration(ctx, tenant, topic, group); err != nil {
		return err
	}
	err = q.retry(ctx, func() error {
		return newQuery(0, stmtSetPaused, paused, string(tenant), topic, group).exec(ctx, q.db)
	})
	if err != nil {
		return fmt.Errorf("set paused = %v for group %q of tenant %q, topic %q: %w", paused, group, tenant, topic, err)
	}
	return nil
}

// operate counts an operator's call in, once its arguments are found valid.
func (q *Queue) operate(ctx context.Context, checks ...error) (_ context.Context, leave func(), err error) {
	for _, err := range checks {
		if err != nil {
			return nil, nil, err
		}
	}
	ctx, leave, err = q.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := q.ready(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// registration returns when a group last registered, in epoch milliseconds, or
// [backend.ErrNotFound].
func (q *Queue) registration(ctx context.Context, tenant tenants.ID, topic, group string) (at int64, err error) {
	found := false
	err = q.retry(ctx, func() error {
		return newQuery(0, stmtRegistration, string(tenant), topic, group).each(ctx, q.db, []any{&at}, func() { found = true })
	})
	if err == nil && !found {
		err = backend.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("group %q of tenant %q, topic %q: %w", group, tenant, topic, err)
	}
	return at, nil
}

// Lag tells how far a group is behind on a topic of one tenant. It returns
// [backend.ErrNotFound] for a group that is not registered there. It locks
// nothing, and its cost is bounded whatever is stored: a look at up to 10,000
// partitions and [backend.MaxLag] messages.
func (q *Queue) Lag(ctx context.Context, tenant tenants.ID, topic, group string) (backend.Lag, error) {
	ctx, leave, err := q.operate(ctx, backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group))
	if err != nil {
		return backend.Lag{}, err
	}
	defer leave()
	if _, err := q.registration(ctx, tenant, topic, group); err != nil {
		return backend.Lag{}, err
	}
	lags, err := newStore(q, topic, backend.SubscriptionConfig{Group: group}, 0).Lag(ctx, []tenants.ID{tenant})
	return lags[tenant], err
}

// Health implements [backend.HealthReporter]. The store has answered when a
// connection of the pool has: one that all callers keep busy does not in time.
func (q *Queue) Health(ctx context.Context) backend.Health {
	h := backend.Health{Subscriptions: engine.Health(q.subscriptions())}
	ctx, leave, err := q.enter(ctx)
	if err != nil {
		h.Store = err
		return h
	}
	defer leave()
	if err := q.db.PingContext(ctx); err != nil {
		q.metrics.countError(err)
		h.Store = fmt.Errorf("ping the database: %w", err)
	}
	return h
}

// DropGroup implements [backend.Admin]. Stop the group's subscribers first:
// those that still run lose their leases and register the group again.
func (q *Queue) DropGroup(ctx context.Context, tenant tenants.ID, topic, group string) error {
	ctx, leave, err := q.operate(ctx, backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group))
	if err != nil {
		return err
	}
	defer leave()
	return q.dropGroup(ctx, tenant, topic, group, 0)
}

// dropGroup removes a group's rows in bounded transactions. The registration
// goes last, so that a call cut short can be made again, and other groups see a
// group that holds everything back or none. With a retention, a group that has
// come back meanwhile stays registered.
func (q *Queue) dropGroup(ctx context.Context, tenant tenants.ID, topic, group string, retention time.Duration) error {
	registered, err := q.registration(ctx, tenant, topic, group)
	if err != nil {
		return err
	}
	s := newStore(q, topic, backend.SubscriptionConfig{Group: group}, 0)
	for _, drop := range []func(context.Context, tenants.ID) error{s.dropAllLeases, s.dropAllStates, s.dropAllMarks, s.dropAllBeats} {
		if err := drop(ctx, tenant); err != nil {
			return s.wrap(tenant, "drop the group", err)
		}
	}
	unregister := newQuery(0, stmtUnregister, string(tenant), topic, group)
	if retention > 0 {
		unregister.add(ifStillAt, registered)
	}
	return s.wrap(tenant, "drop the group", s.exec(ctx, unregister))
}

func (s *store) dropAllLeases(ctx context.Context, tenant tenants.ID) error {
	return pages(ctx, s,
		func(last *string) *query {
			q := newQuery(0, stmtLeasePage, string(tenant), s.group, s.topic)
			if last != nil {
				q.add(pageBehind, *last)
			}
			return q.add(pageOrder, listKeys)
		},
		func(key *string) []any { return []any{key} },
		func(tx *sql.Tx, keys []string) error {
			for rows := range chunksOf(keys, func(key string) rowKey { return rowKey{key: key} }) {
				q := leaseKeyList.query(s.q.joins(), "DELETE", rows, string(tenant), s.group, s.topic)
				if err := q.exec(ctx, tx); err != nil {
					return err
				}
			}
			return nil
		})
}

func (s *store) dropAllStates(ctx context.Context, tenant tenants.ID) error {
	return pages(ctx, s,
		func(last *rowKey) *query {
			q := newQuery(0, stmtStatePage, string(tenant), s.group, s.topic)
			if last != nil {
				q.add(statesBehind, last.key, last.key, last.number)
			}
			return q.add(statesPage, listKeys)
		},
		func(st *rowKey) []any { return []any{&st.key, &st.number} },
		func(tx *sql.Tx, rows []rowKey) error { return s.dropStateRows(ctx, tx, tenant, rows) })
}

func (s *store) dropAllMarks(ctx context.Context, tenant tenants.ID) error {
	return pages(ctx, s,
		func(last *mark) *query {
			q := newQuery(0, stmtMarkPage, string(tenant), s.topic, s.group)
			if last != nil {
				q.add(pageBehind, last.key)
			}
			return q.add(pageOrder, listKeys)
		},
		func(m *mark) []any { m.group = s.group; return []any{&m.key, &m.acked} },
		func(tx *sql.Tx, rows []mark) error { return s.dropMarks(ctx, tx, tenant, rows) })
}

func (s *store) dropAllBeats(ctx context.Context, tenant tenants.ID) error {
	return s.exec(ctx, newQuery(0, stmtBuryGroup, string(tenant), s.group, s.topic, maxRemove))
}

// pages reads rows page by page and removes each page in a transaction. One
// pass is all: rows that subscribers write meanwhile would keep it busy for
// ever.
func pages[T any](
	ctx context.Context, s *store, page func(last *T) *query, dest func(*T) []any, remove func(*sql.Tx, []T) error,
) error {
	for last := (*T)(nil); ; {
		var row T
		var rows []T
		err := s.each(ctx, page(last), dest(&row), func() { rows = nil }, func() { rows = append(rows, row) })
		if err != nil || len(rows) == 0 {
			return err
		}
		last = &rows[len(rows)-1]
		if err := s.q.inTx(ctx, func(tx *sql.Tx) error { return remove(tx, slices.Clone(rows)) }); err != nil {
			return err
		}
	}
}
