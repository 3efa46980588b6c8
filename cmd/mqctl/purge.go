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
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			var e operator.Estimate
			err := a.within(ctx, func(ctx context.Context) (err error) {
				e, err = s.Estimate(ctx, t.tenantID(), t.topic, operator.Scope{PartitionKey: t.key, CountTo: operator.MaxCountTo})
				if err == nil && e.Messages.N+e.States.N+e.Leases.N+e.Groups == 0 {
					err = s.notFound(ctx, &t)
				}
				return err
			})
			if err != nil {
				return err
			}
			plan := fmt.Sprintf("This purges %v: %s, %s and %s, of which owners at work hold %v; what stays is the registration of %s.", &t,
				e.Messages.Of("message"), e.States.Of("delivery state"), e.Leases.Of("lease"), e.Held, plural(e.Groups, "group"))
			if err := yes.ask(ctx, a, plan); err != nil {
				return err
			}
			progress := a.progress()
			removed, err := s.Purge(ctx, t.tenantID(), t.topic, operator.PurgeOptions{
				PartitionKey: t.key,
				Progress:     func(p operator.Purged) { progress.show("%s removed", plural(p.Messages, "message")) },
			})
			progress.end()
			if err != nil {
				return err
			}
			return a.emit(purgedDoc{t.tenant, t.topic, removed.Messages, removed.States, removed.Watermarks, removed.Leases}, func() error {
				return a.line("purged %s, %s, %s, %s: %v", plural(removed.Messages, "message"), plural(removed.States, "delivery state"),
					plural(removed.Watermarks, "watermark"), plural(removed.Leases, "lease"), &t)
			})
		}),
	}
	t.need(c, "tenant", "topic")
	t.may(c, "key")
	c.Flags().Lookup("key").Usage = "only this partition"
	yes.flag(c)
	return c
}
