package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenantmq/tenantmq/bench/peer"
)

func store(ctx context.Context, p peer.Peer, batches [][]peer.Message) error {
	return p.Publish(ctx, 4, batches)
}

func drain(ctx context.Context, p peer.Peer, _ [][]peer.Message, n int) error {
	return p.Consume(ctx, n)
}

func settle(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.compare(ctx, trial{
		name: "settle", peers: slices.Concat(everyone, []string{watermillOne, watermillQueue}), setup: store, work: drain, tenants: 4, inFlight: 16384,
		load:  load{n: 20_000, keys: 20, batch: 500},
		sizes: map[string]int{watermill: 5_000, watermillOne: 300, watermillQueue: 10_000, goqite: 300},
	})
	return []result{r}, err
}

func manyKeys(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.compare(ctx, trial{
		name: "many-keys", peers: everyone, setup: store, work: drain, tenants: 4, inFlight: 1024,
		load: load{n: 3000, keys: 3000, batch: 250}, sizes: map[string]int{goqite: 400}, // 250 keys to a batch: no key twice
	})
	return []result{r}, err
}

// groups counts a message once for each group that settles it.
func groups(ctx context.Context, b *bench) (all []result, err error) {
	for _, n := range []int{1, 2, 4} {
		r, err := b.compare(ctx, trial{
			name: fmt.Sprint("groups-", n), groups: n, setup: store, work: drain, tenants: 4, inFlight: 2048,
			load: load{n: 8000, keys: 20, batch: 500},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// payload publishes in batches of at most 1 MB or 100 messages, and settles.
func payload(ctx context.Context, b *bench) (all []result, err error) {
	for _, s := range []struct {
		name           string
		size, n, batch int
	}{
		{"200B", 200, 5000, 100},
		{"4KiB", 4 << 10, 2500, 100},
		{"64KiB", 64 << 10, 256, 16},
		{"512KiB", 512 << 10, 32, 2},
	} {
		r, err := b.compare(ctx, trial{
			name: "payload-" + s.name, tenants: 4, inFlight: 2048,
			load: load{n: s.n, keys: 20, batch: s.batch, size: s.size},
			work: func(ctx context.Context, p peer.Peer, batches [][]peer.Message, n int) error {
				if err := p.Publish(ctx, 4, batches); err != nil {
					return err
				}
				return p.Consume(ctx, n)
			},
		})
		if err != nil {
			return nil, err
		}
		r.More = map[string]float64{"MB/s": r.Ours * float64(s.size) / 1e6}
		all = append(all, r)
	}
	return all, nil
}
