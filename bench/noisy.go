package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	quietTenants = 49
	quietSeconds = 2 // of each tenant's messages, a round
	quietBacklog = 100_000
	handling     = time.Millisecond       // of a message
	settling     = 500 * time.Millisecond // before the quiet tenants begin: joining is not what is measured
)

// noisyTenant's values are the p99 of the quiet tenants in each round.
func noisyTenant(ctx context.Context, b *bench) ([]result, error) {
	alone, beside := quietRounds{name: "noisy-tenant-alone"}, quietRounds{name: "noisy-tenant", backlog: quietBacklog}
	for range b.rounds {
		for _, r := range []*quietRounds{&alone, &beside} {
			if err := r.add(ctx, b); err != nil {
				return nil, err
			}
		}
	}
	without, with := alone.result(), beside.result()
	with.P99Ratio = new(*with.P99 / *without.P99)
	with.More = map[string]float64{"least backlog left at the end of a round": float64(beside.left)}
	return []result{without, with}, nil
}

// quietRounds are how the quiet tenants fared beside a backlog.
type quietRounds struct {
	name    string
	backlog int
	samples []sample
	all     *latencies
	left    int // of the backlog at the end of a round, the least
}

// add runs a round.
func (r *quietRounds) add(ctx context.Context, b *bench) error {
	l := newLatencies()
	left, u, err := b.quiet(ctx, r.backlog, l)
	if err != nil {
		return err
	}
	if r.all == nil {
		r.all, r.left = newLatencies(), left
	}
	r.all.merge(l)
	r.left = min(r.left, left)
	r.samples = append(r.samples, sample{n: u.took.Seconds(), value: *l.ms(99), usage: u})
	return nil
}

func (r *quietRounds) result() result {
	return newResult(r.name, "ms, p99", ofOurs(r.samples, r.all), nil).perSecond()
}

// quiet measures 49 tenants with a message a second each, published by the same
// process, beside a tenant with a backlog. It returns how much of that is left.
func (b *bench) quiet(ctx context.Context, backlog int, l *latencies) (left int, u usage, err error) {
	list := tenantIDs(1 + quietTenants)
	err = b.with(ctx, list, func(q *mysql.Queue) error {
		msgs := make([]backend.Message, backlog)
		for i := range msgs {
			msgs[i] = message(list[0], fmt.Sprint("key-", i%20), fmt.Sprint("backlog-", i), i)
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
		sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: group})
		if err != nil {
			return err
		}
		var settled int
		u, err = b.meter(ctx, func() error {
			settled, err = serveQuiet(ctx, q, sub, list, quietTenants*quietSeconds, l)
			return err
		})
		left = backlog - settled
		return err
	})
	return left, u, err
}

// serveQuiet publishes n messages of all tenants but the first, handles what
// comes, and stops once those n are settled. It returns how many of the first
// tenant's were settled with them.
func serveQuiet(ctx context.Context, q *mysql.Queue, sub backend.Subscription, list []tenants.ID, n int, l *latencies) (int, error) {
	var loud atomic.Int64
	quiet := make(chan struct{}, n) // one for each message settled
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var handlers errgroup.Group
		for d := range sub.Deliveries() {
			handlers.Go(func() error {
				fromQuiet := d.Message().Tenant != list[0]
				if fromQuiet {
					l.add(age(d))
				}
				time.Sleep(handling)
				err := d.Ack(ctx)
				if fromQuiet {
					quiet <- struct{}{}
				} else {
					loud.Add(1)
				}
				return err
			})
		}
		return handlers.Wait()
	})
	g.Go(func() error {
		time.Sleep(settling)
		err := publishEvenly(ctx, q, list[1:], n)
		if err == nil {
			err = receive(ctx, quiet, n)
		}
		return errors.Join(err, ending(ctx, sub.Stop))
	})
	err := g.Wait()
	return int(loud.Load()), err
}

// receive waits for n signals.
func receive(ctx context.Context, signals <-chan struct{}, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("less than %d messages settled after %v", n, patience))
	defer cancel()
	for range n {
		select {
		case <-signals:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// publishEvenly publishes n messages, one a second of each tenant.
func publishEvenly(ctx context.Context, q *mysql.Queue, list []tenants.ID, n int) error {
	tick := time.NewTicker(time.Second / time.Duration(len(list)))
	defer tick.Stop()
	for i := range n {
		<-tick.C
		if _, err := q.Publish(ctx, stamped(list[i%len(list)], "key", fmt.Sprint("quiet-", i), i)); err != nil {
			return err
		}
	}
	return nil
}
