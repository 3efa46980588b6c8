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
	snapshotBefore = 12 * time.Second
	snapshotHeld   = time.Minute
	snapshotWindow = 10 * time.Second // the last so much of either is compared
	snapshotAhead  = 5_000            // messages stored and not settled, at most
)

// snapshot publishes and settles without pause, first alone and then while
// another connection keeps a consistent snapshot open, as a backup does: the
// server cannot purge what is deleted meanwhile. Samples are seconds.
func snapshot(ctx context.Context, b *bench) ([]result, error) {
	var before, during []sample
	list := tenantIDs(4)
	err := b.with(ctx, list, func(q *mysql.Queue) error {
		return subscribed(ctx, q, backend.SubscriptionConfig{MaxInFlight: 4096}, func(sub backend.Subscription) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var settled atomic.Int64
			g, gctx := errgroup.WithContext(ctx)
			flow(gctx, g, q, sub, list, &settled)
			err := func() (err error) {
				if before, err = b.seconds(gctx, b.span(snapshotBefore), &settled); err != nil {
					return err
				}
				release, err := b.holdSnapshot(gctx)
				if err != nil {
					return err
				}
				during, err = b.seconds(gctx, b.span(snapshotHeld), &settled)
				return errors.Join(err, release())
			}()
			cancel()
			return errors.Join(g.Wait(), err)
		})
	})
	if err != nil {
		return nil, err
	}
	window := int(b.span(snapshotWindow).Seconds())
	without := newResult("snapshot-without", "msg/s", ofOurs(last(before, window), nil), nil)
	with := newResult("snapshot", "msg/s", ofOurs(last(during, window), nil), nil)
	with.More = map[string]float64{
		"msg/s, first seconds": summary(during[:min(window, len(during))], true, nil).Median,
		"ratio to without":     with.Ours / without.Ours,
		loss:                   100 * (1 - with.Ours/without.Ours),
	}
	return []result{without, with}, nil
}

func last(samples []sample, n int) []sample { return samples[max(0, len(samples)-n):] }

// flow publishes and settles until ctx ends. It counts what is settled.
func flow(ctx context.Context, g *errgroup.Group, q *mysql.Queue, sub backend.Subscription, list []tenants.ID, settled *atomic.Int64) {
	var stored atomic.Int64
	for p := range 2 {
		g.Go(func() error {
			const size = 100
			for batch := 0; ; batch++ {
				for stored.Load()-settled.Load() > snapshotAhead {
					if sleep(ctx, time.Millisecond) != nil {
						return nil
					}
				}
				msgs := make([]backend.Message, size)
				for i := range msgs {
					msgs[i] = message(list[(2*batch+p)%len(list)], fmt.Sprint("key-", i%5), fmt.Sprint(p, "-", batch, "-", i), i)
				}
				if _, err := q.Publish(ctx, msgs...); err != nil {
					return unlessEnded(ctx, err)
				}
				stored.Add(size)
			}
		})
	}
	g.Go(func() error {
		for {
			d, err := next(ctx, sub)
			if err != nil {
				return unlessEnded(ctx, err)
			}
			g.Go(func() error {
				if err := d.Ack(context.WithoutCancel(ctx)); err != nil {
					return err
				}
				settled.Add(1)
				return nil
			})
		}
	})
}

// seconds samples what is settled, a second at a time.
func (b *bench) seconds(ctx context.Context, span time.Duration, settled *atomic.Int64) ([]sample, error) {
	var samples []sample
	for range int(span.Seconds()) {
		var n int64
		u, err := b.meter(ctx, func() error {
			n = -settled.Load()
			err := sleep(ctx, time.Second)
			n += settled.Load()
			return err
		})
		if err != nil {
			return nil, err
		}
		samples = append(samples, rate(max(1, int(n)), u))
	}
	return samples, nil
}

// holdSnapshot opens a transaction that sees the tables as they are now, until
// released.
func (b *bench) holdSnapshot(ctx context.Context) (release func() error, err error) {
	conn, err := b.root.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT",
		"SELECT COUNT(*) FROM " + b.database + ".bench_request",
	} {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unlessEnded is err unless it comes from the end of ctx.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
