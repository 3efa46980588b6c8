package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/tenantmq/tenantmq/bench/peer"
)

// The names of the systems in results.
const (
	watermill    = "watermill-sql"
	watermillOne = "watermill-sql-1" // that acknowledges each message before the next
	// watermillQueue deletes what it hands out. A subscriber that is closed in the
	// middle of a batch loses the rest of it, which the others do not: it is shown
	// and not compared with.
	watermillQueue = "watermill-sql-queue"
	river          = "river"
	goqite         = "goqite"
)

// everyone is who can publish and consume something.
var everyone = []string{floor, watermill, river, goqite}

// onServer says whose cost the counters of the MySQL server show.
func onServer(system string) bool {
	return system != river && system != goqite
}

// rivals are the systems beside the queue, each made when first asked for.
type rivals struct {
	dsn     string // of the queue's server
	made    map[string]rival
	closers []func() error
}

type rival struct {
	peer peer.Peer
	err  error
}

// open returns a system, or the reason why it cannot be had.
func (r *rivals) open(ctx context.Context, name string) (peer.Peer, error) {
	if found, ok := r.made[name]; ok {
		return found.peer, found.err
	}
	var made rival
	made.peer, made.err = r.make(ctx, name)
	if made.err == nil {
		r.closers = append(r.closers, made.peer.Close)
	}
	if r.made == nil {
		r.made = make(map[string]rival)
	}
	r.made[name] = made
	return made.peer, made.err
}

func (r *rivals) make(ctx context.Context, name string) (peer.Peer, error) {
	switch name {
	case floor:
		return peer.NewFloor(ctx, r.dsn)
	case watermill:
		return peer.NewWatermill(ctx, r.dsn, peer.WatermillOptions{})
	case watermillOne:
		return peer.NewWatermill(ctx, r.dsn, peer.WatermillOptions{Name: watermillOne, BatchSize: 1})
	case watermillQueue:
		return peer.NewWatermill(ctx, r.dsn, peer.WatermillOptions{Name: watermillQueue, Queue: true})
	case river:
		server, err := peer.StartPostgres(ctx)
		if err != nil {
			return nil, err
		}
		r.closers = append(r.closers, server.Stop)
		return peer.NewRiver(ctx, server.URL())
	default:
		dir, err := os.MkdirTemp("", "bench-goqite-")
		if err != nil {
			return nil, err
		}
		r.closers = append(r.closers, func() error { return os.RemoveAll(dir) })
		return peer.NewGoqite(ctx, dir)
	}
}

// close ends the systems in reverse: clients before their servers. They may be
// opened again.
func (r *rivals) close() error {
	var errs []error
	for _, c := range slices.Backward(r.closers) {
		errs = append(errs, c())
	}
	r.closers, r.made = nil, nil
	return errors.Join(errs...)
}
