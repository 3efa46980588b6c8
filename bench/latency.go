package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

// stamped is a message that carries the time of its publish: one machine, one
// clock.
func stamped(tenant tenants.ID, key, id string, n int) backend.Message {
	m := message(tenant, key, id, n)
	m.Payload = slices.Clone(m.Payload)
	binary.BigEndian.PutUint64(m.Payload, uint64(time.Now().UnixNano()))
	return m
}

func age(d backend.Delivery) time.Duration {
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(d.Message().Payload))))
}

const (
	sameMessages    = 200 // a round
	outsideMessages = 24  // likewise
)

func latency(ctx context.Context, b *bench) ([]result, error) {
	same, err := b.latency(ctx, "latency-same", sameMessages, func(q *mysql.Queue, turn func() error) error {
		list := tenantIDs(4)
		for i := range b.rounds * sameMessages {
			if _, err := q.Publish(ctx, stamped(list[i%4], fmt.Sprint("key-", i%50), fmt.Sprint(i), i)); err != nil {
				return err
			}
			if err := turn(); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	other, err := b.latency(ctx, "latency-other", outsideMessages, func(_ *mysql.Queue, turn func() error) error {
		return b.outside(ctx, b.rounds*outsideMessages, turn)
	})
	return []result{same, other}, err
}

// latency measures messages from publish to handler. run makes them and calls
// turn for each, which waits for it and settles it. A round is so many
// messages; its value is their 99th percentile.
func (b *bench) latency(ctx context.Context, name string, round int, run func(q *mysql.Queue, turn func() error) error) (result, error) {
	all, current := newLatencies(), newLatencies()
	var samples []sample
	var used usage
	err := b.with(ctx, tenantIDs(4), func(q *mysql.Queue) error {
		return subscribed(ctx, q, backend.SubscriptionConfig{}, func(sub backend.Subscription) (err error) {
			n := 0
			used, err = b.meter(ctx, func() error {
				return run(q, func() error {
					d, err := next(ctx, sub)
					if err != nil {
						return err
					}
					current.add(age(d))
					if n++; n%round == 0 {
						samples = append(samples, sample{value: *current.ms(99)})
						all.merge(current)
						current = newLatencies()
					}
					return d.Ack(ctx)
				})
			})
			for i := range samples {
				samples[i].n, samples[i].usage = float64(n), used
			}
			return err
		})
	})
	if err != nil {
		return result{}, err
	}
	return newResult(name, "ms, p99", ofOurs(samples, all), nil), nil
}

// outside has another process publish n messages.
func (b *bench) outside(ctx context.Context, n int, turn func() error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	publisher := exec.CommandContext(ctx, self, "-publisher", b.database, "-rounds", fmt.Sprint(n/outsideMessages))
	publisher.Stderr = os.Stderr
	if err := publisher.Start(); err != nil {
		return err
	}
	for range n {
		if err := turn(); err != nil {
			_ = publisher.Process.Kill()
			_ = publisher.Wait()
			return err
		}
	}
	return publisher.Wait()
}

// publishFromOutside is the other process of latency: a message now and then,
// at no fixed distance to the consumer's polls.
func publishFromOutside(ctx context.Context, database string, rounds int) error {
	b, err := openBench(database, zap.NewNop())
	if err != nil {
		return err
	}
	list := tenantIDs(4)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	for i := range rounds * outsideMessages {
		time.Sleep(time.Duration(55+i*37%50) * time.Millisecond)
		if _, err := q.Publish(ctx, stamped(list[i%4], fmt.Sprint("key-", i%50), fmt.Sprint("outside-", i), i)); err != nil {
			return err
		}
	}
	return nil
}
