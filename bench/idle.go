package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// idle counts what subscriptions with nothing to do ask of the server; a round
// is a second or so of it.
func idle(ctx context.Context, b *bench) (all []result, err error) {
	for _, n := range []int{10, 1_000, 10_000} {
		var samples []sample
		err := b.with(ctx, tenantIDs(n), func(q *mysql.Queue) error {
			return subscribed(ctx, q, backend.SubscriptionConfig{}, func(backend.Subscription) (err error) {
				samples, err = b.rest(ctx, b.rounds)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		all = append(all, newResult(fmt.Sprint("idle-", n), "statements/s", ofOurs(samples, nil), nil).perSecond())
	}
	return all, nil
}

const restSpan = time.Second

// rest samples a subscription that has come to rest, in statements a second.
func (b *bench) rest(ctx context.Context, rounds int) ([]sample, error) {
	time.Sleep(time.Second) // let it come to rest
	var samples []sample
	for range rounds {
		u, err := b.meter(ctx, func() error {
			time.Sleep(restSpan)
			return nil
		})
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{n: u.took.Seconds(), value: u.statements / u.took.Seconds(), usage: u})
	}
	return samples, nil
}
