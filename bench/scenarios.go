package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

const rounds = 5

func publishBatch(ctx context.Context, b *bench) error {
	q, err := b.queue(tenantIDs(4))
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	return b.publish(ctx, q, "batch", 4, 50, 100)
}

func publishSingle(ctx context.Context, b *bench) error {
	q, err := b.queue(tenantIDs(4))
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	return b.publish(ctx, q, "single", 16, 500, 1)
}

func (b *bench) publish(ctx context.Context, q backend.Queue, label string, publishers, calls, size int) error {
	list := tenantIDs(4)
	for round := range rounds {
		err := b.measure(ctx, publishers*calls*size, func() error {
			g, ctx := errgroup.WithContext(ctx)
			for p := range publishers {
				g.Go(func() error {
					batch := make([]backend.Message, size)
					for c := range calls {
						for i := range batch {
							batch[i] = message(list[p%len(list)], fmt.Sprint("key-", (c*size+i)%20), fmt.Sprintf("%s-%d-%d-%d-%d", label, round, p, c, i))
						}
						if _, err := q.Publish(ctx, batch...); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return g.Wait()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func settle(ctx context.Context, b *bench) error {
	return b.drain(ctx, 4, 20_000, 4096, func(i int) string { return fmt.Sprint("key-", i/4%5) })
}

func manyKeys(ctx context.Context, b *bench) error {
	return b.drain(ctx, 4, 3_000, 1024, func(i int) string { return fmt.Sprint("build-", i) })
}

// drain publishes n messages and measures consuming them.
func (b *bench) drain(ctx context.Context, tenantCount, n, inFlight int, key func(i int) string) error {
	list := tenantIDs(tenantCount)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	for round := range rounds {
		msgs := make([]backend.Message, n)
		for i := range msgs {
			msgs[i] = message(list[i%len(list)], key(i), fmt.Sprintf("%d-%d", round, i))
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
		err := b.measure(ctx, n, func() error {
			sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench", MaxInFlight: inFlight})
			if err != nil {
				return err
			}
			if err := consume(ctx, sub, n); err != nil {
				return err
			}
			return sub.Stop(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func idle(ctx context.Context, b *bench) error {
	q, err := b.queue(tenantIDs(1000))
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench"})
	if err != nil {
		return err
	}
	const span = 10 * time.Second
	time.Sleep(time.Second) // let it come to rest
	before, err := b.counters(ctx)
	if err != nil {
		return err
	}
	time.Sleep(span)
	after, err := b.counters(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("  %.1f statements/s, %.0f rows read/s\n", (after.statements-before.statements-1)/span.Seconds(), (after.rowsRead-before.rowsRead)/span.Seconds())
	return sub.Stop(ctx)
}

// stamped is a message that carries the time of its publish: one machine, one
// clock.
func stamped(tenant tenants.ID, key, id string) backend.Message {
	m := message(tenant, key, id)
	binary.BigEndian.PutUint64(m.Payload, uint64(time.Now().UnixNano()))
	return m
}

func age(d backend.Delivery) time.Duration {
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(d.Message().Payload))))
}

func latencySame(ctx context.Context, b *bench) error {
	list := tenantIDs(4)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench"})
	if err != nil {
		return err
	}
	l := newLatencies()
	for i := range 1000 {
		if _, err := q.Publish(ctx, stamped(list[i%4], fmt.Sprint("key-", i%50), fmt.Sprint(i))); err != nil {
			return err
		}
		d := <-sub.Deliveries()
		l.add(age(d))
		if err := d.Ack(ctx); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Println(" ", l)
	return sub.Stop(ctx)
}

const outsideMessages = 400

func latencyOther(ctx context.Context, b *bench) error {
	q, err := b.queue(tenantIDs(4))
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench"})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	publisher := exec.CommandContext(ctx, self, "-publisher", b.name)
	publisher.Stderr = os.Stderr
	if err := publisher.Start(); err != nil {
		return err
	}
	l := newLatencies()
	for range outsideMessages {
		d := <-sub.Deliveries()
		l.add(age(d))
		if err := d.Ack(ctx); err != nil {
			return err
		}
	}
	fmt.Println(" ", l)
	if err := publisher.Wait(); err != nil {
		return err
	}
	return sub.Stop(ctx)
}

// publishFromOutside is the other process of latencyOther: a message now and
// then, at no fixed distance to the consumer's polls.
func publishFromOutside(ctx context.Context, database string) error {
	b, err := openBench(database)
	if err != nil {
		return err
	}
	list := tenantIDs(4)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	for i := range outsideMessages {
		time.Sleep(time.Duration(150+i*37%100) * time.Millisecond / 2)
		if _, err := q.Publish(ctx, stamped(list[i%4], fmt.Sprint("key-", i%50), fmt.Sprint("outside-", i))); err != nil {
			return err
		}
	}
	return nil
}

func noisyTenant(ctx context.Context, b *bench) error {
	alone, err := b.quiet(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Println("  alone:               ", alone)
	beside, err := b.quiet(ctx, 100_000)
	if err != nil {
		return err
	}
	fmt.Println("  beside the noisy one:", beside)
	fmt.Printf("  p99 ratio %.2f\n", float64(beside.quantile(99))/float64(alone.quantile(99)))
	return nil
}

// quietMessages are 10 s of one a second of 49 tenants.
const quietMessages = 49 * 10

// quiet measures 49 tenants with a message a second each, published by the same
// process, beside a tenant with a backlog, handled by a no-op of 1 ms.
func (b *bench) quiet(ctx context.Context, backlog int) (*latencies, error) {
	list := tenantIDs(50)
	q, err := b.queue(list)
	if err != nil {
		return nil, err
	}
	defer q.Close(ctx)
	msgs := make([]backend.Message, backlog)
	for i := range msgs {
		msgs[i] = stamped(list[0], fmt.Sprint("key-", i%20), fmt.Sprint("backlog-", i))
	}
	if err := publishAll(ctx, q, msgs); err != nil {
		return nil, err
	}
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench"})
	if err != nil {
		return nil, err
	}
	l := newLatencies()
	var handled sync.WaitGroup
	handled.Add(quietMessages)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var inner errgroup.Group
		for d := range sub.Deliveries() {
			inner.Go(func() error {
				quiet := d.Message().Tenant != list[0]
				if quiet {
					l.add(age(d))
				}
				time.Sleep(time.Millisecond)
				err := d.Ack(ctx)
				if quiet {
					handled.Done()
				}
				return err
			})
		}
		return inner.Wait()
	})
	g.Go(func() error {
		tick := time.NewTicker(time.Second / 49)
		defer tick.Stop()
		for i := range quietMessages {
			<-tick.C
			if _, err := q.Publish(gctx, stamped(list[1+i%49], "key", fmt.Sprintf("quiet-%d-%d", backlog, i))); err != nil {
				return err
			}
		}
		handled.Wait()
		return sub.Stop(ctx)
	})
	return l, g.Wait()
}

// discovery keeps a backlog that only a group which is away waits for, and
// looks at what an idle subscription reads beside it.
func discovery(ctx context.Context, b *bench) error {
	const keys = 1000
	list := tenantIDs(10)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	away, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "away"})
	if err != nil {
		return err
	}
	if err := away.Stop(ctx); err != nil {
		return err
	}
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench", MaxInFlight: 4096})
	if err != nil {
		return err
	}
	stored := 0
	for _, backlog := range []int{1_000, 10_000, 100_000} {
		var msgs []backend.Message
		for ; stored < backlog; stored++ {
			msgs = append(msgs, message(list[stored%10], fmt.Sprint("key-", stored/10%(keys/10)), fmt.Sprint(stored)))
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
		if err := consume(ctx, sub, len(msgs)); err != nil {
			return err
		}
		time.Sleep(time.Second) // let it come to rest
		const span = 3 * time.Second
		before, err := b.counters(ctx)
		if err != nil {
			return err
		}
		time.Sleep(span)
		after, err := b.counters(ctx)
		if err != nil {
			return err
		}
		statements := after.statements - before.statements - 1
		fmt.Printf("  backlog %7d in %d partitions: %.1f statements/s, %.2f rows read a partition and statement\n",
			backlog, keys, statements/span.Seconds(), (after.rowsRead-before.rowsRead)/statements/keys)
	}
	return sub.Stop(ctx)
}

func partitions(ctx context.Context, b *bench) error {
	const n = 100_000
	list := tenantIDs(10)
	q, err := b.queue(list)
	if err != nil {
		return err
	}
	defer q.Close(ctx)
	heap := func() (uint64, int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	for i := 0; i < n; i += 1000 {
		msgs := make([]backend.Message, 1000)
		for j := range msgs {
			msgs[j] = message(list[(i+j)%10], fmt.Sprint("key-", i+j), fmt.Sprint(i+j))
		}
		if err := publishAll(ctx, q, msgs); err != nil {
			return err
		}
	}
	before, _ := heap()
	sub, err := q.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: "bench", MaxInFlight: backend.MaxMaxInFlight, VisibilityTimeout: time.Hour})
	if err != nil {
		return err
	}
	start := time.Now()
	held := make([]backend.Delivery, 0, n)
	for range n {
		select {
		case d := <-sub.Deliveries():
			held = append(held, d)
		case <-time.After(time.Minute):
			return fmt.Errorf("%d of %d delivered", len(held), n)
		}
	}
	after, goroutines := heap()
	fmt.Printf("  %d deliveries of as many partitions out after %v: %d MB, %d goroutines\n", n, time.Since(start).Round(time.Millisecond), (after-before)>>20, goroutines)
	return consumeHeld(ctx, held, sub)
}

func consumeHeld(ctx context.Context, held []backend.Delivery, sub backend.Subscription) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, d := range held {
		g.Go(func() error { return d.Ack(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return sub.Stop(ctx)
}
