package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Offset is where a group stands in a partition.
type Offset struct {
	Tenant              tenants.ID
	Topic, PartitionKey string
	Group               string
	Paused              bool   // nothing is delivered to the group
	Watermark           uint64 // all up to here is settled
	Head, Tail          uint64 // the first and the last offset stored
	// Pending are the messages that the group has not settled, delivered or not.
	Pending Count
	// Oldest is the age of the oldest of them; of the first that were counted, if
	// there are more.
	Oldest time.Duration
	// Owner is the subscriber that has, or last had, the partition's lease, and
	// State how that stands.
	Owner string
	State LeaseState
}

// Cursor is the row's place in the listing.
func (o Offset) Cursor() Cursor {
	return Cursor{Topic: o.Topic, Group: o.Group, PartitionKey: o.PartitionKey}
}

// Offsets lists the partitions that have messages, once for every registered
// group: by topic, group, and partition key in the order of the database. It
// reads up to CountTo messages a row.
func (o *Operator) Offsets(ctx context.Context, tenant tenants.ID, p Page) ([]Offset, error) {
	if err := o.check(backend.CheckTenant(tenant), p.check()); err != nil {
		return nil, err
	}
	topics, err := o.topicsOf(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	var list []Offset
	for _, topic := range topics {
		groups, err := o.registrations(ctx, o.db, tenant, topic)
		if err != nil {
			return nil, wrap("list the groups", tenant, topic, err)
		}
		for _, g := range groups {
			if p.Group != "" && g.group != p.Group || topic == p.After.Topic && before(g.group, p.After.Group) {
				continue
			}
			after := p.After.within(pair{topic, g.group}, p.After.PartitionKey)
			keys, err := o.keys(ctx, tenant, topic, after, p.limit()-len(list))
			if err != nil {
				return nil, wrap("list the partitions", tenant, topic, err)
			}
			rows, err := o.offsets(ctx, tenant, topic, g, keys)
			if err != nil {
				return nil, wrap("read the offsets", tenant, topic, err)
			}
			if list = append(list, rows...); len(list) == p.limit() {
				return list, nil
			}
		}
	}
	return list, nil
}

// before is compare's less.
func before(a, b string) bool { return compare(a, b) < 0 }

// compare compares as the database does, as if the shorter were padded with
// spaces.
func compare(a, b string) int {
	for i := range max(len(a), len(b)) {
		x, y := byte(' '), byte(' ')
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return 0
}

// offsets are the rows of a group in partitions.
func (o *Operator) offsets(ctx context.Context, tenant tenants.ID, topic string, g registration, keys []string) ([]Offset, error) {
	stored, err := o.ends(ctx, o.db, tenant, topic, keys)
	if err != nil {
		return nil, err
	}
	positions, err := o.positions(ctx, tenant, topic, g, keys)
	if err != nil {
		return nil, err
	}
	leases, err := o.leasesOf(ctx, tenant, pair{topic, g.group}, keys)
	if err != nil {
		return nil, err
	}
	rows := make([]Offset, len(keys))
	var open []*Offset
	for i, key := range keys {
		rows[i] = Offset{
			Tenant: tenant, Topic: topic, PartitionKey: key, Group: g.group, Paused: g.paused,
			Watermark: positions[key], Head: stored[key].head, Tail: stored[key].tail,
			Owner: leases[key].Owner, State: leases[key].State,
		}
		if rows[i].Tail > rows[i].Watermark {
			open = append(open, &rows[i])
		}
	}
	return rows, o.countPending(ctx, open)
}

// countPending fills in what is pending in partitions of one group.
func (o *Operator) countPending(ctx context.Context, list []*Offset) error {
	type row struct {
		i, n int
		age  int64
	}
	bound := o.countTo()
	for chunk := range slices.Chunk(list, unions) {
		q := new(query)
		for i, p := range chunk {
			q.item(i, " UNION ALL ", stmtPending, i, p.Group, string(p.Tenant), p.Topic, p.PartitionKey, p.Watermark, p.Group, bound+1)
		}
		rows, err := read(ctx, o.db, q, func(r *row) []any { return []any{&r.i, &r.n, &r.age} })
		if err != nil {
			return err
		}
		for _, r := range rows {
			chunk[r.i].Pending, chunk[r.i].Oldest = count(r.n, bound), fromMillis(r.age)
		}
	}
	return nil
}
