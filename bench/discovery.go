package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	discoveredTenants = 10
	discoveredKeys    = 1000 // of all tenants together
)

// discovery keeps a backlog that only a group which is away waits for, and
// looks at what an idle subscription costs beside it. Its value is the rows that
// discovery reads a partition, which must not grow with the backlog.
func discovery(ctx context.Context, b *bench) ([]result, error) {
	sizes := []int{1_000, 10_000, 100_000, 1_000_000}
	if b.short() {
		sizes = sizes[:3]
	}
	var all []result
	list := tenantIDs(discoveredTenants)
	err := b.with(ctx, list, func(q *mysql.Queue) error {
		if err := subscribed(ctx, q, backend.SubscriptionConfig{Group: "away"}, func(backend.Subscription) error { return nil }); err != nil {
			return err
		}
		stored := 0
		for _, size := range sizes {
			if err := storeBacklog(ctx, q, list, stored, size); err != nil {
				return err
			}
			stored = size
			r, err := b.discover(ctx, q, list, size)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// storeBacklog stores messages from up to to, in turn for each partition.
func storeBacklog(ctx context.Context, q backend.Publisher, list []tenants.ID, from, to int) error {
	const portion = 20_000
	for ; from < to; from += portion {
		var msgs []backend.Message
		for t := range list { // a batch is of one tenant
			for i := from + t; i < min(from+portion, to); i += len(list) {
				msgs = append(msgs, message(list[t], fmt.Sprint("key-", i/len(list)%(discoveredKeys/len(list))), fmt.Sprint(i), i))
			}
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
	}
	return nil
}

// discover watches a group that begins behind the backlog and so has nothing to
// do.
func (b *bench) discover(ctx context.Context, q *mysql.Queue, list []tenants.ID, size int) (result, error) {
	var samples []sample
	cfg := backend.SubscriptionConfig{Group: fmt.Sprint("behind-", size), Start: backend.Latest}
	err := subscribed(ctx, q, cfg, func(backend.Subscription) (err error) {
		samples, err = b.rest(ctx, 2) // of its cost only
		return err
	})
	if err != nil {
		return result{}, err
	}
	times, rows, err := b.timeDiscovery(ctx, list, max(len(samples), 11))
	if err != nil {
		return result{}, err
	}
	for i := range samples {
		samples[i].value = rows[i]
	}
	r := newResult(fmt.Sprint("discovery-", size), "rows/partition", ofOurs(samples, nil), nil).perSecond()
	_, took, _ := spread(times)
	r.More = map[string]float64{"discovery, ms": took}
	return r, nil
}

// timeDiscovery runs the statement by which the queue finds partitions, as
// docs/design.md has it: the queue's own cannot be timed from outside. It
// returns the times of n runs in milliseconds, and the rows read a partition.
func (b *bench) timeDiscovery(ctx context.Context, list []tenants.ID, n int) (times, rows []float64, err error) {
	statement := "SELECT tenant, partition_key, MIN(`offset`), MAX(`offset`) FROM queue_messages FORCE INDEX (PRIMARY) WHERE topic = ? AND tenant IN (?" +
		strings.Repeat(", ?", len(list)-1) + ") GROUP BY tenant, topic, partition_key"
	args := []any{topic}
	for _, t := range list {
		args = append(args, string(t))
	}
	for range n {
		var found int
		u, err := b.meter(ctx, func() (err error) {
			found, err = b.countRows(ctx, statement, args)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if found != discoveredKeys {
			return nil, nil, fmt.Errorf("discovery found %d of %d partitions", found, discoveredKeys)
		}
		times = append(times, float64(u.took)/float64(time.Millisecond))
		rows = append(rows, u.rowsRead/discoveredKeys)
	}
	return times, rows, nil
}

func (b *bench) countRows(ctx context.Context, statement string, args []any) (n int, err error) {
	rows, err := b.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
