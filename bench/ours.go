package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/bench/peer"
	"github.com/tenantmq/tenantmq/tenants"
)

// ours is the queue in the place of a [peer.Peer]. A key belongs to the tenant
// that [tenantOf] says.
type ours struct {
	bench    *bench
	tenants  []tenants.ID
	inFlight int
	groups   int
	calls    *latencies // of publish, or of the settlement; Reset empties it
	q        *mysql.Queue
}

var _ peer.Peer = (*ours)(nil)

func (o *ours) Name() string { return "ours" }

func (o *ours) Reset(ctx context.Context) (err error) {
	if err := o.Close(); err != nil {
		return err
	}
	o.calls = newLatencies()
	o.q, err = o.bench.open(ctx, o.tenants)
	return err
}

func (o *ours) Close() error {
	if o.q == nil {
		return nil
	}
	return ending(context.Background(), o.q.Close)
}

func (o *ours) Publish(ctx context.Context, publishers int, batches [][]peer.Message) error {
	return share(ctx, publishers, batches, func(ctx context.Context, batch []peer.Message) error {
		start := time.Now()
		_, err := o.q.Publish(ctx, o.messages(batch)...)
		o.calls.add(time.Since(start))
		return err
	})
}

func (o *ours) messages(batch []peer.Message) []backend.Message {
	msgs := make([]backend.Message, len(batch))
	for i, m := range batch {
		msgs[i] = backend.Message{Tenant: tenantOf(m.Key, o.tenants), Topic: topic, PartitionKey: m.Key, ID: m.ID, Payload: m.Payload}
	}
	return msgs
}

func (o *ours) PublishTx(ctx context.Context, publishers int, batches [][]peer.Message) error {
	return share(ctx, publishers, batches, func(ctx context.Context, batch []peer.Message) error {
		start := time.Now()
		for {
			err := o.outbox(ctx, batch)
			if !errors.Is(err, mysql.ErrRetryTransaction) {
				o.calls.add(time.Since(start))
				return err
			}
		}
	})
}

// outbox is a transaction of the caller's.
func (o *ours) outbox(ctx context.Context, batch []peer.Message) error {
	tx, err := o.bench.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO bench_request (id, note) VALUES (?, ?)", batch[0].ID, "accepted"); err != nil {
		return err
	}
	if _, err := o.q.PublishTx(ctx, tx, o.messages(batch)...); err != nil {
		return err
	}
	return tx.Commit()
}

// Consume subscribes, settles n messages for each group and stops; all of it is
// on the clock.
func (o *ours) Consume(ctx context.Context, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range max(1, o.groups) {
		g.Go(func() error {
			cfg := backend.SubscriptionConfig{Group: fmt.Sprint(group, "-", i), MaxInFlight: o.inFlight}
			return subscribed(ctx, o.q, cfg, func(sub backend.Subscription) error { return consume(ctx, sub, n, o.calls) })
		})
	}
	return g.Wait()
}

// patience is how long a measurement waits for what should have come.
const patience = 2 * time.Minute

// consume handles n deliveries with a no-op and acknowledges them. calls may be
// nil.
func consume(ctx context.Context, sub backend.Subscription, n int, calls *latencies) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("less than %d deliveries after %v", n, patience))
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := make(chan error, 1)
	for range n {
		d, err := next(ctx, sub)
		if err != nil {
			return err
		}
		wg.Go(func() {
			start := time.Now()
			if err := d.Ack(ctx); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			if calls != nil {
				calls.add(time.Since(start))
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func next(ctx context.Context, sub backend.Subscription) (backend.Delivery, error) {
	select {
	case d, ok := <-sub.Deliveries():
		if !ok {
			return nil, errors.New("deliveries ended early")
		}
		return d, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
