package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Subscriber is a process that consumes a topic of a tenant, or did until
// recently.
type Subscriber struct {
	Tenant       tenants.ID
	Topic, Group string
	Name         string
	StartedAt    time.Time
	HeartbeatAge time.Duration
	Alive        bool  // its heartbeat has not expired
	Leases       Count // held now
	Expired      Count // that it let expire, and nobody has taken since
	// Gone tells that it has leases, held or expired, and no heartbeat: StartedAt
	// and HeartbeatAge are zero.
	Gone bool
}

// Cursor is the row's place in the listing.
func (s Subscriber) Cursor() Cursor { return Cursor{Topic: s.Topic, Group: s.Group, Name: s.Name} }

// maxLeases bounds the leases of a group that are looked at for whose they are.
const maxLeases = 10_000

// Subscribers lists the subscribers by group, topic and name, in the order of
// the database. A subscriber has a heartbeat while it finds work of the tenant,
// and for a lease duration after; one without that still has leases is listed as well.
// Leases are counted among the first 10,000 of the group.
func (o *Operator) Subscribers(ctx context.Context, tenant tenants.ID, p Page) ([]Subscriber, error) {
	if err := o.check(backend.CheckTenant(tenant), p.check()); err != nil {
		return nil, err
	}
	pairs, err := o.pairs(ctx, tenant, stmtBeatPair, p)
	if err != nil {
		return nil, err
	}
	leased, err := o.pairs(ctx, tenant, stmtLeasePair, p)
	if err != nil {
		return nil, err
	}
	pairs = append(pairs, leased...)
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(compare(a.group, b.group), compare(a.topic, b.topic)) })
	pairs = slices.Compact(pairs)
	var list []Subscriber
	for _, of := range pairs {
		rows, err := o.subscribers(ctx, tenant, of, p.After.within(of, p.After.Name), p.limit()-len(list))
		if err != nil {
			return nil, wrap("list the subscribers", tenant, of.topic, err)
		}
		if list = append(list, rows...); len(list) == p.limit() {
			break
		}
	}
	return list, nil
}

func (o *Operator) subscribers(ctx context.Context, tenant tenants.ID, of pair, after string, limit int) ([]Subscriber, error) {
	type row struct {
		Subscriber
		started, age int64
	}
	q := newQuery(stmtSubscribers, string(tenant), of.group, of.topic)
	if after != "" {
		q.add(nameBehind, after)
	}
	rows, err := read(ctx, o.db, q.add(namePage, limit), func(r *row) []any { return []any{&r.Name, &r.started, &r.age, &r.Alive} })
	if err != nil {
		return nil, err
	}
	leases, atLeast, err := o.leasesByOwner(ctx, tenant, of)
	if err != nil {
		return nil, err
	}
	list := make([]Subscriber, len(rows), len(rows)+len(leases))
	for i, r := range rows {
		list[i] = r.Subscriber
		list[i].StartedAt, list[i].HeartbeatAge = at(r.started), fromMillis(r.age)
	}
	for owner := range leases {
		known := slices.ContainsFunc(list[:len(rows)], func(s Subscriber) bool { return s.Name == owner })
		if !known && (after == "" || before(after, owner)) { // those behind a full page do not get on it
			list = append(list, Subscriber{Name: owner, Gone: true})
		}
	}
	slices.SortFunc(list, func(a, b Subscriber) int { return compare(a.Name, b.Name) })
	list = list[:min(len(list), limit)]
	for i := range list {
		s := &list[i]
		s.Tenant, s.Topic, s.Group = tenant, of.topic, of.group
		s.Leases, s.Expired = Count{leases[s.Name].held, atLeast}, Count{leases[s.Name].expired, atLeast}
	}
	return list, nil
}

// ownerLeases are the leases of an owner that were not given back.
type ownerLeases struct{ held, expired int }

// leasesByOwner counts up to maxLeases of a group.
func (o *Operator) leasesByOwner(ctx context.Context, tenant tenants.ID, of pair) (by map[string]ownerLeases, atLeast bool, err error) {
	type row struct {
		owner string
		ownerLeases
	}
	rows, err := read(ctx, o.db, newQuery(stmtOwners, string(tenant), of.group, of.topic, maxLeases+1), func(r *row) []any {
		return []any{&r.owner, &r.held, &r.expired}
	})
	by = make(map[string]ownerLeases, len(rows))
	all := 0
	for _, r := range rows {
		by[r.owner] = r.ownerLeases
		all += r.held + r.expired
	}
	return by, all > maxLeases, err
}

// countLeases counts up to bound+1 leases of a group that meet a condition.
func (o *Operator) countLeases(ctx context.Context, tenant tenants.ID, of pair, condition string, bound int) (int, error) {
	n, _, err := readOne(ctx, o.db, newQuery(stmtCountLeases+condition+countLeasesEnd, string(tenant), of.group, of.topic, bound+1), single[int])
	return n, err
}
