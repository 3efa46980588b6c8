package operator

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// ReleaseLease takes a partition from its owner, whether his lease has expired
// or not. Nothing he sends counts any more: his settlements fail with
// [backend.ErrLeaseLost]. What he may have handed over stays suspect, as after a
// crash, and anybody may take the partition at once. It returns the lease as it
// was, and [backend.ErrNotFound] if nobody has one.
func (o *Operator) ReleaseLease(ctx context.Context, tenant tenants.ID, topic, group, partitionKey string) (Lease, error) {
	err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group), backend.CheckPartitionKey(partitionKey))
	if err != nil {
		return Lease{}, err
	}
	l, err := o.releaseLease(ctx, tenant, pair{topic, group}, partitionKey)
	if err != nil {
		return Lease{}, fmt.Errorf("release the lease of group %q on partition key %q of tenant %q, topic %q: %w", group, partitionKey, tenant, topic, err)
	}
	return l, nil
}

func (o *Operator) releaseLease(ctx context.Context, tenant tenants.ID, of pair, key string) (Lease, error) {
	if err := o.CheckSchema(ctx); err != nil {
		return Lease{}, err
	}
	leases, err := o.leasesOf(ctx, tenant, of, []string{key})
	if err != nil {
		return Lease{}, err
	}
	n := 0
	err = o.inTx(ctx, func(tx *sql.Tx) (err error) {
		n, err = newQuery(stmtEndLease+keepSuspects+endLeaseSet+ofLease, string(tenant), of.group, of.topic, key).exec(ctx, tx)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: nobody has a lease there", backend.ErrNotFound)
	}
	return leases[key], err
}

// ReleaseStale does the same to all leases of a group that have expired, but not
// to those that were renewed meanwhile, and returns how many there were. When it
// fails or is cancelled half way, what was released stays so, and the error says
// how many.
func (o *Operator) ReleaseStale(ctx context.Context, tenant tenants.ID, topic, group string) (n int, err error) {
	if err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), backend.CheckGroup(group)); err != nil {
		return 0, err
	}
	if err := o.CheckSchema(ctx); err != nil {
		return 0, fmt.Errorf("release the expired leases of group %q of tenant %q, topic %q: %w", group, tenant, topic, err)
	}
	for after := ""; ; {
		var page []Lease
		q := newQuery(stmtLeases+ifStale, string(tenant), group, topic)
		if after != "" {
			q.add(keyBehind, after)
		}
		page, err = o.readLeases(ctx, tenant, pair{topic, group}, q.add(keyPage, listKeys))
		for _, l := range page {
			if err != nil {
				break
			}
			released := 0
			released, err = o.releaseExpired(ctx, l)
			n += released
			after = l.PartitionKey
		}
		if err != nil {
			return n, fmt.Errorf("release the expired leases of group %q of tenant %q, topic %q; %d are released and stay so: %w", group, tenant, topic, n, err)
		}
		if len(page) < listKeys {
			return n, nil
		}
	}
}

// releaseExpired releases a lease that had expired when it was listed, unless it
// was renewed or taken since, and returns the number of leases released.
func (o *Operator) releaseExpired(ctx context.Context, l Lease) (n int, err error) {
	err = o.inTx(ctx, func(tx *sql.Tx) (err error) {
		q := newQuery(stmtEndLease+keepSuspects+endLeaseSet+ofLease, string(l.Tenant), l.Group, l.Topic, l.PartitionKey)
		n, err = q.add(ifEpoch, l.Epoch).exec(ctx, tx)
		return err
	})
	return n, err
}
