package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/examples/internal/shell"
	"github.com/tenantmq/tenantmq/publish"
)

const group = "submitqueue"

// Topics within this service. Merges go to runway by landing.MergeTopic.
const (
	requestTopic = "request" // partition key: the queue, so requests are taken up in order
	checkTopic   = "check"   // partition key: the build, so checks run side by side
)

// subject of every message here, those of package landing included.
type subject struct {
	Change string `json:"change"`
}

// NewRequestHandler takes up accepted requests: each gets a build.
func NewRequestHandler(store Store) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: requestTopic, Group: group}, func(ctx context.Context, s subject, d consume.Delivery) error {
		queue := landing.Queue(d.Tenant)
		build := publish.IntentID(requestID(queue, s.Change), "build")
		return unknownIsFinal(store.Advance(ctx, queue, s.Change, Accepted, Checking, "",
			message(checkTopic, build, publish.IntentID(build, "check"), s)))
	})
}

// NewCheckHandler runs the queue's check command on a change.
func NewCheckHandler(cfg Config, store Store) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: checkTopic, Group: group}, func(ctx context.Context, s subject, d consume.Delivery) error {
		queue := landing.Queue(d.Tenant)
		r, err := store.Get(ctx, queue, s.Change)
		if err != nil || r.State != Checking { // a repeated delivery need not run the command again
			return unknownIsFinal(err)
		}
		result, err := shell.Run(ctx, cfg.CheckOf(queue), "QUEUE="+queue, "CHANGE="+s.Change)
		switch {
		case err != nil:
			return err
		case !result.OK:
			return store.Advance(ctx, queue, s.Change, Checking, CheckFailed, result.Output)
		}
		return store.Advance(ctx, queue, s.Change, Checking, Merging, "",
			message(landing.MergeTopic, queue, publish.IntentID(r.ID, "merge"), landing.Merge{Request: r.ID, Change: s.Change}))
	})
}

// NewSignalHandler takes runway's answers.
func NewSignalHandler(store Store) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: landing.SignalTopic, Group: group}, func(ctx context.Context, s landing.Signal, d consume.Delivery) error {
		to := Conflicted
		if s.Landed {
			to = Landed
		}
		return unknownIsFinal(store.Advance(ctx, landing.Queue(d.Tenant), s.Change, Merging, to, s.Detail))
	})
}

// DeadLetters closes requests whose message on a topic was given up. from is
// the state that such a request is stuck in.
func DeadLetters(topic string, from State) func(Store) consume.Handler {
	return func(store Store) consume.Handler {
		sub := consume.Subscription{Topic: topic + backend.DefaultDeadLetterSuffix, Group: group}
		return consume.JSON(sub, func(ctx context.Context, s subject, d consume.Delivery) error {
			failure, _ := d.Failure()
			detail := fmt.Sprintf("%s: %s", failure.OriginalTopic, failure.LastError)
			return unknownIsFinal(store.Advance(ctx, landing.Queue(d.Tenant), s.Change, from, DeadLettered, detail))
		})
	}
}

// unknownIsFinal: trying again does not make an unknown request known.
func unknownIsFinal(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return consume.Reject(err)
	}
	return err
}

func message(topic, partitionKey, id string, payload any) Outgoing {
	encoded, err := json.Marshal(payload)
	if err != nil {
		panic(err) // strings only
	}
	return Outgoing{Topic: topic, Message: publish.Message{ID: id, PartitionKey: partitionKey, Payload: encoded}}
}
