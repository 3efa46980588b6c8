package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/bench/peer"
	"github.com/tenantmq/tenantmq/tenants"
)

// usualSize is the payload of a message, in bytes, where nothing else is said.
const usualSize = 200

// noise is what payloads are cut from: nothing that a system could compress.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}()

// payloadOf gives message i its bytes. They are shared: nobody may write to them.
func payloadOf(i, size int) []byte {
	from := i * 61 % (len(noise) - size)
	return noise[from : from+size]
}

// load is n messages in batches.
type load struct {
	n, keys, batch, size int // size is of the payload
}

// batches of a load, each with keys of one residue modulo tenants, so that a
// batch is of one tenant ([ours] makes tenants of keys).
func (l load) batches(tenants int) [][]peer.Message {
	var all [][]peer.Message
	next := make([]int, tenants)
	for made := 0; made < l.n; {
		t := len(all) % tenants
		b := make([]peer.Message, min(l.batch, l.n-made))
		for i := range b {
			key := next[t]%(l.keys/tenants)*tenants + t
			next[t]++
			b[i] = peer.Message{Key: "key-" + strconv.Itoa(key), ID: "m-" + strconv.Itoa(made), Payload: payloadOf(made, l.size)}
			made++
		}
		all = append(all, b)
	}
	return all
}

// tenantOf undoes what batches did.
func tenantOf(key string, list []tenants.ID) tenants.ID {
	n, err := strconv.Atoi(strings.TrimPrefix(key, "key-"))
	if err != nil {
		panic(fmt.Sprintf("key %q is none of a load", key))
	}
	return list[n%len(list)]
}

// share lets publishers take batches from one list.
func share(ctx context.Context, publishers int, batches [][]peer.Message, publish func(ctx context.Context, batch []peer.Message) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range publishers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(batches) || ctx.Err() != nil {
					return ctx.Err()
				}
				if err := publish(ctx, batches[i]); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// message is one for the queue, of which n others may come before.
func message(tenant tenants.ID, key, id string, n int) backend.Message {
	return backend.Message{Tenant: tenant, Topic: topic, PartitionKey: key, ID: id, Payload: payloadOf(n, usualSize)}
}

// publishAll stores messages in large batches, off the clock.
func publishAll(ctx context.Context, q backend.Publisher, msgs []backend.Message) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for len(msgs) > 0 {
		n := min(1000, len(msgs))
		part := msgs[:n]
		msgs = msgs[n:]
		g.Go(func() error {
			_, err := q.Publish(ctx, part...)
			return err
		})
	}
	return g.Wait()
}
