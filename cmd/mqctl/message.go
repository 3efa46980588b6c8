package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
)

func (a *app) message() *cobra.Command {
	c := &cobra.Command{
		Use: "message", Short: "Work on one message, or publish",
		Example: "  mqctl message show --tenant acme --topic orders --key customer-17 --id order-4711",
	}
	c.AddCommand(a.messageList(), a.messageShow(), a.messageDelete(), a.messageRedrive(), a.messagePublish())
	return c
}

func (a *app) messageDelete() *cobra.Command {
	var t target
	var yes confirmation
	c := &cobra.Command{
		Use: "delete", Short: "Delete a message, for every group",
		Long: "Delete a message, for every group. Its payload is gone for good: message show --raw saves it before.\n" +
			"Whoever works on its partition loses it: what he is working on there, this message included, does not\n" +
			"count, and the others of it are delivered again.",
		Example: "  mqctl message delete --tenant acme --topic orders --key customer-17 --id order-4711",
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			var m operator.MessageDetail
			err := a.within(ctx, func(ctx context.Context) (err error) {
				m, err = s.Message(ctx, t.tenantID(), t.topic, t.key, t.id)
				return err
			})
			if err != nil {
				return err
			}
			if err := yes.ask(ctx, a, a.planDelete(&t, m)); err != nil {
				return err
			}
			err = a.within(ctx, func(ctx context.Context) error { return s.DeleteMessage(ctx, t.tenantID(), t.topic, t.key, t.id) })
			if err != nil {
				return err
			}
			return a.emit(identityDoc{t.tenant, t.topic, t.key, t.id, "deleted"}, func() error { return a.line("deleted: %v", &t) })
		}),
	}
	t.need(c, "tenant", "topic", "key", "id")
	yes.flag(c)
	return c
}

func (a *app) planDelete(t *target, m operator.MessageDetail) string {
	pending := 0
	for _, g := range m.Groups {
		if !g.Settled {
			pending++
		}
	}
	return fmt.Sprintf("This deletes %v: %s, published %s; not settled by %d of %s.",
		t, plural(len(m.Payload), "byte"), a.zonedMoment(m.PublishedAt), pending, plural(len(m.Groups), "group"))
}

// identityDoc tells what was done to a message.
type identityDoc struct {
	Tenant       string `json:"tenant"`
	Topic        string `json:"topic"`
	PartitionKey string `json:"partition_key"`
	ID           string `json:"id"`
	Done         string `json:"done"`
}

func (a *app) messageRedrive() *cobra.Command {
	var t target
	var force bool
	c := &cobra.Command{
		Use: "redrive", Short: "Return a dead letter to where it failed",
		Long: "Return a dead letter, named by its identity on the dead-letter topic, to where it failed: for the group\n" +
			"that failed it, and with all its attempts again.",
		Example: "  mqctl message redrive --tenant acme --topic orders_dlq --key customer-17 --id order-4711",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			_, err := s.CheckRedrive(ctx, t.tenantID(), t.topic, t.key, t.id)
			if err != nil && (!force || !errors.Is(err, operator.ErrGroupUnknown)) {
				return err
			}
			if err := s.queue.Redrive(ctx, t.tenantID(), t.topic, t.key, t.id); err != nil {
				return err
			}
			return a.emit(identityDoc{t.tenant, t.topic, t.key, t.id, "redriven"}, func() error { return a.line("redriven: %v", &t) })
		}),
	}
	t.need(c, "tenant", "topic", "key", "id")
	c.Flags().Lookup("topic").Usage = "the dead-letter topic"
	c.Flags().BoolVar(&force, "force", false, "also for a group that is not registered, which gets it only once it is")
	return c
}
