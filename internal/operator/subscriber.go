package operator

import (
	"context"
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
}

// Cursor is the row's place in the listing.
func (s Subscriber) Cursor() Cursor { return Cursor{Topic: s.Topic, Group: s.Group, Name: s.Name} }

// maxLeases bounds the leases of a group that are looked at for whose they are.
const maxLeases = 10_000

// Subscribers lists the subscribers by group, topic and name, in the order of
// the database. A subscriber has a heartbeat while the tenant has something
// stored on its topic. Leases are counted among the first 10,000 of the group.
func (o *Operator) Subscribers(ctx context.Context, tenant tenants.ID, p Page) ([]Subscriber, error) {
	if err := o.check(backend.CheckTenant(tenant), p.check()); err != nil {
		return nil, err
	}
	pairs, err := o.pairs(ctx, tenant, stmtBeatPair, p)
	if err != nil {
		return nil, err
	}
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
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	leases, err := o.countLeases(ctx, tenant, of, ifHeld, maxLeases)
	if err != nil {
		return nil, err
	}
	list := make([]Subscriber, len(rows))
	for i, r := range rows {
		s := r.Subscriber
		s.Tenant, s.Topic, s.Group, s.StartedAt, s.HeartbeatAge = tenant, of.topic, of.group, at(r.started), fromMillis(r.age)
		s.Leases = Count{N: leases.by[s.Name], AtLeast: leases.atLeast}
		list[i] = s
	}
	return list, nil
}

// leaseCount is the number of leases by owner.
type leaseCount struct {
	by      map[string]int
	all     int
	atLeast bool
}

// countLeases counts up to bound leases of a group that meet a condition.
func (o *Operator) countLeases(ctx context.Context, tenant tenants.ID, of pair, condition string, bound int) (leaseCount, error) {
	type row struct {
		owner string
		n     int
	}
	c := leaseCount{by: make(map[string]int)}
	q := newQuery(stmtCountLeases+condition+countLeasesEnd, string(tenant), of.group, of.topic, bound+1)
	rows, err := read(ctx, o.db, q, func(r *row) []any { return []any{&r.owner, &r.n} })
	for _, r := range rows {
		c.by[r.owner] = r.n
		c.all += r.n
	}
	c.atLeast = c.all > bound
	return c, err
}
