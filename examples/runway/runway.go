package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/publish"
)

// Config is the section runway of the configuration. {queue} stands for the
// name of the queue and {change} for that of the change.
type Config struct {
	Address    string `yaml:"address"`    // of the HTTP server, host:port; it serves /livez, /readyz and /metrics
	Repository string `yaml:"repository"` // path of the repository, bare or not
	Target     string `yaml:"target"`     // ref that changes are merged into
	Change     string `yaml:"change"`     // ref of a change
}

// NewMergeHandler merges changes and signals what became of them.
//
// A queue's merges are one partition and in strict order: until a merge is
// settled no other of its queue begins. A repetition, after a crash at any
// point, therefore finds the target as the first attempt left it and comes to
// the same result; the id of the signal makes it one signal.
func NewMergeHandler(cfg Config, publisher publish.Publisher) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: landing.MergeTopic, Group: "runway"}, func(ctx context.Context, m landing.Merge, d consume.Delivery) error {
		if err := landing.CheckChange(m.Change); err != nil {
			return consume.Reject(err)
		}
		names := strings.NewReplacer("{queue}", landing.Queue(d.Tenant), "{change}", m.Change)
		repository := git.Repository(names.Replace(cfg.Repository))

		merge, err := repository.Merge(ctx, names.Replace(cfg.Target), names.Replace(cfg.Change), fmt.Sprintf("Land %s\n\nRequest: %s", m.Change, m.Request))
		if errors.Is(err, git.ErrNoRef) {
			return consume.Reject(err)
		}
		if err != nil {
			return err
		}
		signal := landing.Signal{Change: m.Change, Landed: true, Detail: merge.Commit}
		if len(merge.Conflicts) > 0 {
			signal.Landed, signal.Detail = false, "conflict in "+strings.Join(merge.Conflicts, ", ")
		}
		payload, err := json.Marshal(signal)
		if err != nil {
			return err
		}
		_, err = publisher.Publish(ctx, d.Tenant, landing.SignalTopic, publish.Message{
			ID: publish.IntentID(m.Request, "merged"), PartitionKey: m.Change, Payload: payload,
		})
		return err
	})
}
