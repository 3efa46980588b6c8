package main

import (
	"context"

	"github.com/tenantmq/tenantmq/publish"
)

// Outgoing is a message that exists if and only if the change of state does
// that it is handed over with.
type Outgoing struct {
	Topic string
	publish.Message
}

// Store keeps requests. Every method touches one queue. Safe for concurrent
// use.
type Store interface {
	// Accept creates a request and its message. One that exists is returned as
	// it is, created is false and nothing is published.
	Accept(ctx context.Context, queue, change string, out Outgoing) (r Request, created bool, err error)

	// Advance moves a request from one state to another and publishes out. It
	// changes and publishes nothing when the request is in any other state: a
	// repeated delivery. backend.ErrNotFound for an unknown request.
	Advance(ctx context.Context, queue, change string, from, to State, detail string, out ...Outgoing) error

	// Get returns a request with its history, or backend.ErrNotFound.
	Get(ctx context.Context, queue, change string) (Request, error)

	// List returns up to limit requests behind the change after, by name.
	List(ctx context.Context, queue, after string, limit int) ([]Request, error)

	// Count returns how many requests are in which state.
	Count(ctx context.Context, queue string) (map[State]int, error)
}
