package peer

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// spread has workers take the items from one shared list until all are done or
// one fails.
func spread[T any](ctx context.Context, workers int, items []T, work func(context.Context, T) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(workers, len(items)) {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return nil
				}
				if err := work(ctx, items[i]); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// named says which system an error is of.
func named(err error, peer, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", peer, doing, err)
}
