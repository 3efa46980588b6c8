package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/bench/peer"
)

// trial is work that the queue and others do in turn.
type trial struct {
	name string
	load load
	// sizes are of a round of those who would take too long for all of the load:
	// the rate counts.
	sizes   map[string]int
	tenants int // of ours
	// inFlight is MaxInFlight of ours, groups how many consume.
	inFlight, groups int
	peers            []string

	// setup is off the clock; nil: none.
	setup func(ctx context.Context, p peer.Peer, batches [][]peer.Message) error
	work  func(ctx context.Context, p peer.Peer, batches [][]peer.Message, n int) error
}

// contestant is a system in a trial.
type contestant struct {
	name    string
	peer    peer.Peer
	err     error // why it is out
	load    load
	samples []sample
	calls   *latencies // of ours
}

// contestants are those of a trial, ours first.
func (b *bench) contestants(ctx context.Context, t trial, us *ours) []*contestant {
	all := []*contestant{{name: us.Name(), peer: us, load: t.load, calls: newLatencies()}}
	for _, name := range t.peers {
		c := &contestant{name: name, load: t.load}
		c.load.n = min(cmp.Or(t.sizes[name], t.load.n), t.load.n)
		c.peer, c.err = b.rivals.open(ctx, name)
		all = append(all, c)
	}
	return all
}

// compare lets the systems take turns, each on its own fresh storage; the one
// that begins is another in each round. A round before, of a tenth of the load,
// warms up. Whoever cannot do it, is not there or breaks off is left out with
// the reason.
func (b *bench) compare(ctx context.Context, t trial) (_ result, err error) {
	t.tenants = cmp.Or(t.tenants, 1)
	t.load.size = cmp.Or(t.load.size, usualSize)
	us := &ours{bench: b, tenants: tenantIDs(t.tenants), inFlight: t.inFlight, groups: t.groups}
	defer func() { err = errors.Join(err, us.Close()) }()
	all := b.contestants(ctx, t, us)
	for round := range 1 + b.rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			if c.err != nil {
				continue
			}
			l := c.load
			if round == 0 {
				l.n = max(l.n/10, 1)
			}
			s, err := b.round(ctx, t, c.peer, l)
			switch {
			case err != nil && (c.peer == us || ctx.Err() != nil):
				return result{}, fmt.Errorf("%s, round %d: %w", c.name, round, err)
			case err != nil:
				c.err = err
			case round > 0:
				c.samples = append(c.samples, s)
				if c.peer == us {
					c.calls.merge(us.calls)
				}
			}
		}
	}
	systems, missing := make(map[string]cost), make(map[string]string)
	for _, c := range all {
		if c.err != nil {
			missing[c.name] = c.err.Error()
			continue
		}
		systems[c.name] = summary(c.samples, onServer(c.name), c.calls)
	}
	return newResult(t.name, "msg/s", systems, missing), nil
}

// round is one system's turn with a load.
func (b *bench) round(ctx context.Context, t trial, p peer.Peer, l load) (sample, error) {
	if err := p.Reset(ctx); err != nil {
		return sample{}, err
	}
	batches := l.batches(t.tenants)
	if t.setup != nil {
		if err := t.setup(ctx, p, batches); err != nil {
			return sample{}, err
		}
	}
	if us, ok := p.(*ours); ok {
		us.calls = newLatencies() // those of the setup are not asked for
	}
	u, err := b.meter(ctx, func() error { return t.work(ctx, p, batches, l.n) })
	return rate(l.n*max(1, t.groups), u), err
}
