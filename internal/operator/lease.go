package operator

import (
	"context"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// LeaseState is how a lease stands by the server's clock.
type LeaseState int

// States of a lease.
const (
	NoLease  LeaseState = iota // nobody has had one
	Held                       // its owner works on the partition
	Expired                    // its owner has vanished; anybody may take it
	Released                   // given back
)

// String is the state's name in small letters.
func (s LeaseState) String() string {
	return [...]string{"none", "held", "expired", "released"}[s]
}

// Lease is a subscriber's right to work on a partition.
type Lease struct {
	Tenant              tenants.ID
	Topic, PartitionKey string
	Group               string
	Paused              bool   // nothing is delivered to the group; filled in by Leases, as Pending is
	Owner               string // a subscriber's name
	Epoch               uint64
	Since               time.Time
	ExpiresIn           time.Duration // negative: expired so long ago; 0 once released
	State               LeaseState
	Claimed             uint64 // messages up to here may have been handed over
	Suspect             uint64 // those up to here may have been by an owner that vanished; 0 for none
	// Pending tells that messages are stored behind the group's watermark.
	Pending bool
}

// Cursor is the row's place in the listing.
func (l Lease) Cursor() Cursor {
	return Cursor{Topic: l.Topic, Group: l.Group, PartitionKey: l.PartitionKey}
}

// Leases lists leases by group, topic and partition key, in the order of the
// database.
func (o *Operator) Leases(ctx context.Context, tenant tenants.ID, p Page) ([]Lease, error) {
	if err := o.check(backend.CheckTenant(tenant), p.check()); err != nil {
		return nil, err
	}
	pairs, err := o.pairs(ctx, tenant, stmtLeasePair, p)
	if err != nil {
		return nil, err
	}
	var list []Lease
	for _, of := range pairs {
		q := newQuery(stmtLeases, string(tenant), of.group, of.topic)
		if p.StaleOnly {
			q.add(ifStale)
		}
		if key := p.After.within(of, p.After.PartitionKey); key != "" {
			q.add(keyBehind, key)
		}
		rows, err := o.readLeases(ctx, tenant, of, q.add(keyPage, p.limit()-len(list)))
		if err == nil {
			err = o.findPending(ctx, tenant, of, rows)
		}
		if err != nil {
			return nil, wrap("list the leases", tenant, of.topic, err)
		}
		if list = append(list, rows...); len(list) == p.limit() {
			break
		}
	}
	return list, nil
}

// leasesOf are a group's leases of partitions; those without one are missing.
func (o *Operator) leasesOf(ctx context.Context, tenant tenants.ID, of pair, keys []string) (map[string]Lease, error) {
	found := make(map[string]Lease, len(keys))
	for chunk := range slices.Chunk(keys, listKeys) {
		rows, err := o.readLeases(ctx, tenant, of, newQuery(stmtLeases+keyIn, string(tenant), of.group, of.topic).in(chunk))
		if err != nil {
			return nil, err
		}
		for _, l := range rows {
			found[l.PartitionKey] = l
		}
	}
	return found, nil
}

func (o *Operator) readLeases(ctx context.Context, tenant tenants.ID, of pair, q *query) ([]Lease, error) {
	type row struct {
		Lease
		since, left int64
		kept        bool // not released
	}
	rows, err := read(ctx, o.db, q, func(r *row) []any {
		return []any{&r.PartitionKey, &r.Owner, &r.Epoch, &r.since, &r.left, &r.kept, &r.Claimed, &r.Suspect}
	})
	list := make([]Lease, len(rows))
	for i, r := range rows {
		l := r.Lease
		l.Tenant, l.Topic, l.Group, l.Since, l.State = tenant, of.topic, of.group, at(r.since), Released
		if r.kept {
			l.State, l.ExpiresIn = Held, fromMillis(r.left)
			if r.left <= 0 {
				l.State = Expired
			}
		}
		list[i] = l
	}
	return list, err
}

// findPending fills in which leases of a group have work.
func (o *Operator) findPending(ctx context.Context, tenant tenants.ID, of pair, list []Lease) error {
	if len(list) == 0 {
		return nil
	}
	keys := make([]string, len(list))
	for i, l := range list {
		keys[i] = l.PartitionKey
	}
	stored, err := o.ends(ctx, o.db, tenant, of.topic, keys)
	if err != nil {
		return err
	}
	registered, err := o.registrations(ctx, o.db, tenant, of.topic)
	if err != nil {
		return err
	}
	r := registration{group: of.group}
	if i := slices.IndexFunc(registered, func(r registration) bool { return r.group == of.group }); i >= 0 {
		r = registered[i]
	}
	positions, err := o.positions(ctx, tenant, of.topic, r, keys)
	for i, key := range keys {
		list[i].Paused = r.paused
		list[i].Pending = stored[key].tail > positions[key]
	}
	return err
}
