package main

import (
	"context"

	"github.com/tenantmq/tenantmq/bench/peer"
)

// publishers is work that only publishes.
func publishers(n int) func(context.Context, peer.Peer, [][]peer.Message, int) error {
	return func(ctx context.Context, p peer.Peer, batches [][]peer.Message, _ int) error {
		return p.Publish(ctx, n, batches)
	}
}

// publishSingle compares on one tenant: watermill-sql has one topic. Ours alone
// also does it for 4 tenants.
func publishSingle(ctx context.Context, b *bench) ([]result, error) {
	t := trial{
		name: "publish-single", peers: everyone, work: publishers(16),
		load: load{n: 3000, keys: 20, batch: 1}, sizes: map[string]int{goqite: 800},
	}
	one, err := b.compare(ctx, t)
	if err != nil {
		return nil, err
	}
	t.name, t.peers, t.tenants = "publish-single-tenants", nil, 4
	four, err := b.compare(ctx, t)
	return []result{one, four}, err
}

// publishBatch is, like publishSingle, of one tenant and then of 4.
func publishBatch(ctx context.Context, b *bench) ([]result, error) {
	t := trial{
		name: "publish-batch", peers: everyone, work: publishers(4),
		load: load{n: 20_000, keys: 20, batch: 100}, sizes: map[string]int{goqite: 8000},
	}
	one, err := b.compare(ctx, t)
	if err != nil {
		return nil, err
	}
	t.name, t.peers, t.tenants = "publish-batch-tenants", nil, 4
	four, err := b.compare(ctx, t)
	return []result{one, four}, err
}

func publishTx(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.compare(ctx, trial{
		name: "publish-tx", peers: everyone,
		load: load{n: 1500, keys: 20, batch: 1}, sizes: map[string]int{goqite: 400},
		work: func(ctx context.Context, p peer.Peer, batches [][]peer.Message, _ int) error {
			return p.PublishTx(ctx, 16, batches)
		},
	})
	return []result{r}, err
}
