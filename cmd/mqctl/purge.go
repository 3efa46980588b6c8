package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
)

type purgedDoc struct {
	Tenant     string `json:"tenant"`
	Topic      string `json:"topic"`
	Messages   int    `json:"messages"`
	States     int    `json:"states"`
	Watermarks int    `json:"watermarks"`
	Leases     int    `json:"leases"`
}

func (a *app) purge() *cobra.Command {
	var t target
	var yes confirmation
	c := &cobra.Command{
		Use: "purge", Short: "Remove the messages of a topic, or of one partition",
		Long: "Remove the messages of a topic, or of one partition, with all that is known of them. Groups stay registered.\n" +
			"It goes in transactions of at most 1,000 rows and may run beside publishers and subscribers, whose deliveries\n" +
			"in flight do not count. Interrupted, it leaves the rest, and can be repeated.",
		Example: "  mqctl purge --tenant acme --topic orders\n  mqctl purge --tenant acme --topic orders --key customer-17",
		RunE: a.lasting(func() error { return yes.check(a) }, func(ctx context.Context, s *session) error {
			var e operator.Estimate
			err := a.within(ctx, func(ctx context.Context) (err error) {
				e, err = s.Estimate(ctx, t.tenantID(), t.topic, operator.Scope{PartitionKey: t.key})
				return err
			})
			if err != nil {
				return err
			}
			plan := fmt.Sprintf("This purges %v: %v messages, %v delivery states and %v leases, %v of which have owners at work; %d groups stay registered.",
				&t, e.Messages, e.States, e.Leases, e.Held, e.Groups)
			if err := yes.ask(ctx, a, plan); err != nil {
				return err
			}
			progress := a.progress()
			removed, err := s.Purge(ctx, t.tenantID(), t.topic, operator.PurgeOptions{
				PartitionKey: t.key,
				Progress:     func(p operator.Purged) { progress.show("%d messages removed", p.Messages) },
			})
			progress.end()
			if err != nil {
				return err
			}
			return a.emit(purgedDoc{t.tenant, t.topic, removed.Messages, removed.States, removed.Watermarks, removed.Leases}, func() error {
				return a.line("purged %d messages, %d delivery states, %d watermarks, %d leases: %v",
					removed.Messages, removed.States, removed.Watermarks, removed.Leases, &t)
			})
		}),
	}
	t.need(c, "tenant", "topic")
	t.may(c, "key")
	c.Flags().Lookup("key").Usage = "only this partition"
	yes.flag(c)
	return c
}
