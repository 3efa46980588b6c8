package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// partitions has as many deliveries out as a subscription may have, each of a
// partition of its own.
func partitions(ctx context.Context, b *bench) ([]result, error) {
	n := backend.MaxMaxInFlight
	if b.short() {
		n /= 10
	}
	list := tenantIDs(10)
	var r result
	err := b.with(ctx, list, func(q *mysql.Queue) error {
		msgs := make([]backend.Message, n)
		for i := range msgs {
			msgs[i] = message(list[i*len(list)/n], fmt.Sprint("key-", i), fmt.Sprint(i), i)
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
		before := heap()
		cfg := backend.SubscriptionConfig{MaxInFlight: backend.MaxMaxInFlight, VisibilityTimeout: time.Hour}
		return subscribed(ctx, q, cfg, func(sub backend.Subscription) error {
			var held []backend.Delivery
			u, err := b.meter(ctx, func() (err error) {
				held, err = take(ctx, sub, n)
				return err
			})
			if err != nil {
				return err
			}
			r = newResult("partitions", "deliveries/s", ofOurs([]sample{rate(n, u)}, nil), nil)
			r.More = map[string]float64{
				"heap, bytes a partition": (heap() - before) / float64(n),
				"goroutines with all out": float64(runtime.NumGoroutine()),
			}
			return ackAll(ctx, held)
		})
	})
	return []result{r}, err
}

// heap is what is in use, in bytes.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// take receives n deliveries and settles none.
func take(ctx context.Context, sub backend.Subscription, n int) ([]backend.Delivery, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("less than %d deliveries after %v", n, patience))
	defer cancel()
	held := make([]backend.Delivery, 0, n)
	for range n {
		d, err := next(ctx, sub)
		if err != nil {
			return held, err
		}
		held = append(held, d)
	}
	return held, nil
}

func ackAll(ctx context.Context, held []backend.Delivery) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range held {
		g.Go(func() error { return d.Ack(ctx) })
	}
	return g.Wait()
}
