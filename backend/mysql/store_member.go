package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// touchAfter is how old a registration gets before it is renewed; far below
	// the retention of groups that are away.
	touchAfter = time.Hour
	// registerAtOnce bounds the connections that Register takes.
	registerAtOnce = 8
)

// Register implements [engine.Store].
func (s *store) Register(ctx context.Context, list []tenants.ID) error {
	missing, old, err := s.unregistered(ctx, list)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(registerAtOnce)
	for _, tenant := range missing {
		group.Go(func() error { return s.wrap(tenant, "register the group", s.register(ctx, tenant)) })
	}
	for _, tenant := range old {
		group.Go(func() error { return s.wrap(tenant, "renew the registration", s.touch(ctx, tenant)) })
	}
	return group.Wait()
}

// unregistered are the tenants that do not know the group, and those that have
// not heard of it for long.
func (s *store) unregistered(ctx context.Context, list []tenants.ID) (missing, old []tenants.ID, err error) {
	for chunk := range slices.Chunk(list, listTenants) {
		var tenant tenants.ID
		var isOld bool
		known := make(map[tenants.ID]bool, len(chunk))
		q := newQuery(len(chunk), stmtRegistered, touchAfter.Milliseconds(), s.topic, s.group).in(anys(chunk)...)
		err := s.each(ctx, q, []any{&tenant, &isOld}, func() { clear(known) }, func() { known[tenant] = isOld })
		if err != nil {
			return nil, nil, s.wrap(chunk[0], "read the registrations", err)
		}
		for _, tenant := range chunk {
			if isOld, ok := known[tenant]; !ok {
				missing = append(missing, tenant)
			} else if isOld {
				old = append(old, tenant)
			}
		}
	}
	return missing, old, nil
}

// register adds the group at its start position. Latest is behind all that is
// stored when it looks: a publish that commits meanwhile may fall on either
// side, and one that inserts later finds the position with its fence.
func (s *store) register(ctx context.Context, tenant tenants.ID) error {
	var position uint64
	if s.cfg.Start == backend.Latest {
		q := newQuery(0, stmtTopicTail, string(tenant), s.topic)
		if err := s.each(ctx, q, []any{&position}, func() {}, func() {}); err != nil {
			return err
		}
	}
	return s.exec(ctx, newQuery(0, stmtRegister, string(tenant), s.topic, s.group, position))
}

func (s *store) touch(ctx context.Context, tenant tenants.ID) error {
	return s.execPromptly(ctx, newQuery(0, stmtRegister, string(tenant), s.topic, s.group, 0))
}

// Control implements [engine.Store].
func (s *store) Control(ctx context.Context, list []tenants.ID) (map[tenants.ID]engine.Control, error) {
	control := make(map[tenants.ID]engine.Control)
	chores := make(map[tenants.ID]chore)
	for chunk := range slices.Chunk(list, s.q.membersOf()) {
		of := anys(chunk)
		q := newQuery(2*len(chunk), stmtControl, s.group, s.topic).in(of...).
			add(stmtControlPaused, touchAfter.Milliseconds(), s.topic, s.group).in(of...)
		var tenant tenants.ID
		var name string
		var alive, paused bool
		err := s.promptly(ctx, func(conn *sql.Conn) error {
			for _, tenant := range chunk {
				delete(control, tenant)
				delete(chores, tenant)
			}
			return q.each(ctx, conn, []any{&tenant, &name, &alive, &paused}, func() {
				c, todo := control[tenant], chores[tenant]
				switch {
				case name == "":
					c.Paused, todo.touch = paused, !alive
				case alive:
					c.Members = append(c.Members, name)
				default:
					todo.dead = append(todo.dead, name)
				}
				control[tenant], chores[tenant] = c, todo
			})
		})
		if err != nil {
			return nil, s.wrap(chunk[0], "read the subscribers", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tenant := range list {
		delete(s.chores, tenant)
		if todo := chores[tenant]; todo.touch || len(todo.dead) > 0 {
			s.chores[tenant] = todo
		}
	}
	return control, nil
}

// Beat implements [engine.Store]. What Control has seen of the tenant tells it
// whether there is more to do.
func (s *store) Beat(ctx context.Context, tenant tenants.ID) error {
	beat := newQuery(0, stmtBeat, string(tenant), s.group, s.topic, s.name, millis(s.cfg.LeaseDuration))
	if err := s.execPromptly(ctx, beat); err != nil {
		return s.wrap(tenant, "write the heartbeat", err)
	}
	s.mu.Lock()
	todo := s.chores[tenant]
	delete(s.chores, tenant)
	s.mu.Unlock()
	if len(todo.dead) > 0 {
		if err := s.bury(ctx, tenant, todo.dead); err != nil {
			return err
		}
	}
	if todo.touch {
		return s.wrap(tenant, "renew the registration", s.touch(ctx, tenant))
	}
	return nil
}

// bury removes heartbeats, unless they beat again.
func (s *store) bury(ctx context.Context, tenant tenants.ID, names []string) error {
	for chunk := range slices.Chunk(slices.Sorted(slices.Values(names)), listKeys) {
		q := newQuery(len(chunk), stmtBury, string(tenant), s.group, s.topic).in(anys(chunk)...)
		if err := s.execPromptly(ctx, q); err != nil {
			return s.wrap(tenant, "remove expired heartbeats", err)
		}
	}
	return nil
}

// Leave implements [engine.Store].
func (s *store) Leave(ctx context.Context, tenant tenants.ID) error {
	err := s.execPromptly(ctx, newQuery(0, stmtLeave, string(tenant), s.group, s.topic, s.name))
	return s.wrap(tenant, "remove the heartbeat", err)
}
