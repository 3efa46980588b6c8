// Package peer is the other systems that the benchmark measures beside the
// queue: raw SQL as the floor, watermill-sql, River and goqite, all behind one
// interface and at the same durability.
package peer

import (
	"context"
	"errors"
)

// A Message is what every system stores.
type Message struct {
	Key, ID string
	Payload []byte
}

// ErrCannot is what a system cannot do at all; the error that wraps it says why.
var ErrCannot = errors.New("cannot")

// A Peer is one system with its own storage.
type Peer interface {
	// Name is what the report calls the system.
	Name() string

	// Reset gives the system fresh, empty storage. It is off the clock.
	Reset(ctx context.Context) error

	// Publish stores each batch as one transaction; a batch of one message is a
	// single publish. The publishers take the batches from one shared list.
	Publish(ctx context.Context, publishers int, batches [][]Message) error

	// Consume handles messages with a handler that does nothing, and returns
	// when n of them are settled in the database.
	Consume(ctx context.Context, n int) error

	// PublishTx stores each batch in a transaction of the caller that also
	// inserts one row into a table of the caller's.
	PublishTx(ctx context.Context, publishers int, batches [][]Message) error

	// Close stops the system and gives its connections back.
	Close() error
}
