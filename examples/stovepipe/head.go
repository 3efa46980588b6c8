package main

import (
	"context"

	"github.com/tenantmq/tenantmq/publish"
)

// State of a head.
type State string

const (
	Pending State = "pending"
	Green   State = "green"
	Broken  State = "broken"
)

// Head is a commit that was the head of its queue's target when ingested.
type Head struct {
	Queue  string `json:"queue"`
	Commit string `json:"commit"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"` // why it is broken
}

// Store keeps heads. Every method touches one queue. Safe for concurrent use.
type Store interface {
	// Add records a pending head and publishes out, both or neither. A head
	// that is known is returned as it is, and nothing is published.
	Add(ctx context.Context, queue, commit string, out publish.Message) (h Head, added bool, err error)

	// Decide makes a pending head green or broken. Position orders a queue's
	// heads by ingestion. A head decided before stays as it is.
	Decide(ctx context.Context, queue, commit string, to State, position uint64, detail string) error

	// Get returns a head, or backend.ErrNotFound.
	Get(ctx context.Context, queue, commit string) (Head, error)

	// LastGreen returns the last ingested commit that is green, "" if none is.
	LastGreen(ctx context.Context, queue string) (string, error)
}
