package main

import (
	"strings"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
)

// State of a request. It only moves forward:
//
//	accepted → checking → merging → landed | conflicted
//	               └→ check_failed      each open state → dead_lettered
type State string

const (
	Accepted     State = "accepted"
	Checking     State = "checking"
	Merging      State = "merging"
	Landed       State = "landed"
	Conflicted   State = "conflicted"
	CheckFailed  State = "check_failed"
	DeadLettered State = "dead_lettered" // given up, see its detail
)

// step is the place of a state in every history. A history holds one entry a
// step, so a request ends once, whatever is delivered twice.
func (s State) step() int {
	switch s {
	case Accepted:
		return 0
	case Checking:
		return 1
	case Merging:
		return 2
	}
	return 3
}

// Request to land a change, named by queue and change: a change is an immutable
// revision, so asking twice for the same one is the same request.
type Request struct {
	ID      string  `json:"id"`
	Queue   string  `json:"queue"`
	Change  string  `json:"change"`
	State   State   `json:"state"`
	History []Entry `json:"history"`
}

// Entry of a request's history.
type Entry struct {
	State  State  `json:"state"`
	At     int64  `json:"at"` // epoch milliseconds, the database's clock
	Detail string `json:"detail,omitempty"`
}

// The id carries the queue, so that a request is found by its full key on the
// shard of its queue.
func requestID(queue, change string) string { return change + "@" + queue }

func parseRequestID(id string) (queue, change string, err error) {
	change, queue, found := strings.Cut(id, "@") // a change has none
	if !found || landing.CheckChange(change) != nil {
		return "", "", &backend.FieldError{Field: "request id", Value: quoted(id), Rule: "want change@queue"}
	}
	return queue, change, nil
}
