package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Group is a consumer group registered for a topic of a tenant.
type Group struct {
	Tenant tenants.ID
	Topic  string
	Group  string
	Paused bool
	// SeenAt is when a subscriber last registered or renewed the registration,
	// which those that run do every hour or so.
	SeenAt time.Time
	// StartOffset is the group's position in partitions where it has no
	// watermark: 0, or for a group that started with the latest messages the last
	// offset stored then.
	StartOffset uint64
	// Subscribers with a live heartbeat. A subscriber has one while it finds
	// work of the tenant, and for a lease duration after.
	Subscribers int
	Lag         backend.Lag
}

// lagScan is up to how many messages of a topic the lag of a group is read by
// one statement that looks at them all. It costs less than [mysql.Queue.Lag]
// where partitions are many.
const lagScan = 20_000

// Groups lists the groups registered for a topic of a tenant, or for all with
// the topic "", by topic and name. Of each it reads up to 20,000 messages, or
// [backend.MaxLag] of those pending where a topic has more.
func (o *Operator) Groups(ctx context.Context, tenant tenants.ID, topic string) ([]Group, error) {
	if err := o.check(backend.CheckTenant(tenant), unless(topic, backend.CheckTopic)); err != nil {
		return nil, err
	}
	topics, err := o.topicsOf(ctx, tenant, Page{Topic: topic})
	if err != nil {
		return nil, err
	}
	var list []Group
	for _, topic := range topics {
		registered, err := o.registrations(ctx, o.db, tenant, topic)
		if err != nil {
			return nil, wrap("list the groups", tenant, topic, err)
		}
		if len(registered) == 0 {
			continue
		}
		messages, _, err := readOne(ctx, o.db, newQuery(stmtCountMessages, string(tenant), topic, lagScan+1), single[int])
		if err != nil {
			return nil, wrap("count the messages", tenant, topic, err)
		}
		for _, r := range registered {
			g := Group{Tenant: tenant, Topic: topic, Group: r.group, Paused: r.paused, SeenAt: at(r.seenAt), StartOffset: r.start}
			g.Subscribers, _, err = readOne(ctx, o.db, newQuery(stmtCountAlive, string(tenant), r.group, topic), single[int])
			if err != nil {
				return nil, wrap("count the subscribers", tenant, topic, err)
			}
			g.Lag, err = o.lag(ctx, tenant, topic, r, messages)
			if errors.Is(err, backend.ErrNotFound) {
				continue // dropped meanwhile
			}
			if err != nil {
				return nil, err
			}
			list = append(list, g)
		}
	}
	return list, nil
}

// lag is that of a group of a topic with so many messages, as far as they were
// counted.
func (o *Operator) lag(ctx context.Context, tenant tenants.ID, topic string, r registration, messages int) (backend.Lag, error) {
	if messages > lagScan {
		return o.q.Lag(ctx, tenant, topic, r.group)
	}
	type row struct {
		n   int
		age int64
	}
	q := newQuery(stmtLag, r.group, r.group, string(tenant), topic, r.start, r.group)
	got, _, err := readOne(ctx, o.db, q, func(r *row) []any { return []any{&r.n, &r.age} })
	if err != nil {
		return backend.Lag{}, wrap("read the lag", tenant, topic, err)
	}
	n := count(got.n, backend.MaxLag)
	return backend.Lag{Messages: n.N, Oldest: fromMillis(got.age), AtLeast: n.AtLeast}, nil
}

func isRegistered(list []registration, group string) bool {
	return slices.ContainsFunc(list, func(r registration) bool { return r.group == group })
}

// registration is a group's row of a topic.
type registration struct {
	group  string
	paused bool
	seenAt int64
	start  uint64
}

func (o *Operator) registrations(ctx context.Context, db querier, tenant tenants.ID, topic string) ([]registration, error) {
	return read(ctx, db, newQuery(stmtRegistrations, string(tenant), topic),
		func(r *registration) []any { return []any{&r.group, &r.paused, &r.seenAt, &r.start} })
}
