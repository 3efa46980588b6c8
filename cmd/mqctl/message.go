package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
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

type messageDoc struct {
	Tenant       string          `json:"tenant"`
	Topic        string          `json:"topic"`
	PartitionKey string          `json:"partition_key"`
	ID           string          `json:"id"`
	Offset       uint64          `json:"offset"`
	PublishedAt  time.Time       `json:"published_at"`
	PublishID    uint64          `json:"publish_id,string"` // it may be above 2^53
	TargetGroup  string          `json:"target_group"`
	OriginalID   string          `json:"original_id"`
	Failure      *failure        `json:"failure"`
	Metadata     json.RawMessage `json:"metadata"`
	Payload      payload         `json:"payload"`
	Groups       []stateDoc      `json:"groups"`
}

type stateDoc struct {
	Group       string `json:"group"`
	Settled     bool   `json:"settled"`
	Stored      bool   `json:"stored"`
	Postponed   bool   `json:"postponed"`
	Attempts    int    `json:"attempts"`
	Deliveries  int    `json:"deliveries"`
	VisibleInMS int64  `json:"visible_in_ms"`
	LastError   string `json:"last_error"`
	Suspect     bool   `json:"suspect"`
	Owner       string `json:"owner"`
	Lease       string `json:"lease"`
}

func newMessageDoc(m operator.MessageDetail, asHex, full bool) messageDoc {
	d := messageDoc{
		Tenant: string(m.Tenant), Topic: m.Topic, PartitionKey: m.PartitionKey, ID: m.ID, Offset: m.Offset,
		PublishedAt: m.PublishedAt.UTC(), PublishID: m.PublishID, TargetGroup: m.TargetGroup, OriginalID: m.OriginalID,
		Metadata: json.RawMessage(m.Metadata), Payload: showPayload(m.Payload, asHex, full), Groups: []stateDoc{},
	}
	if m.Failure != nil {
		f := newFailure(*m.Failure)
		d.Failure = &f
	}
	for _, g := range m.Groups {
		d.Groups = append(d.Groups, stateDoc{
			g.Group, g.Settled, g.Stored, g.Postponed, g.Attempts, g.Deliveries, g.VisibleIn.Milliseconds(), g.LastError, g.Suspect,
			g.Owner, g.Lease.String(),
		})
	}
	return d
}

func (a *app) messageShow() *cobra.Command {
	var t target
	var raw, full, asHex bool
	check := func() error {
		if raw && (a.json || full || asHex) {
			return errors.New("--raw writes the payload alone, byte for byte: leave --json, --full and --hex out")
		}
		return nil
	}
	c := &cobra.Command{
		Use: "show", Short: "Show a message and where every group stands with it",
		Long: "Show a message and where every group stands with it. A message that every group has settled is gone.\n\n" +
			"The payload is shown as text if it is printable, and in base64 otherwise, up to 256 bytes.",
		Example: "  mqctl message show --tenant acme --topic orders --key customer-17 --id order-4711\n" +
			"  mqctl message show --tenant acme --topic orders --key customer-17 --id order-4711 --raw > payload",
		RunE: a.brief(check, func(ctx context.Context, s *session) error {
			m, err := s.Message(ctx, t.tenantID(), t.topic, t.key, t.id)
			if err != nil {
				return err
			}
			if raw {
				_, err := a.out.Write(m.Payload)
				return err
			}
			d := newMessageDoc(m, asHex, full)
			return a.emit(d, func() error { return a.describe(d) })
		}),
	}
	t.need(c, "tenant", "topic", "key", "id")
	c.Flags().BoolVar(&raw, "raw", false, "write the payload alone, byte for byte")
	c.Flags().BoolVar(&full, "full", false, "show all of the payload")
	c.Flags().BoolVar(&asHex, "hex", false, "show the payload in hexadecimal")
	return c
}

// describe shows a message to a person.
func (a *app) describe(d messageDoc) error {
	facts := []table.Row{
		{"tenant", quote(d.Tenant)},
		{"topic", quote(d.Topic)},
		{"partition key", quote(d.PartitionKey)},
		{"id", quote(d.ID)},
		{"offset", d.Offset},
		{"published", a.moment(d.PublishedAt)},
		{"metadata", printable(string(d.Metadata))},
	}
	if d.TargetGroup != "" {
		facts = append(facts, table.Row{"only for group", quote(d.TargetGroup)}, table.Row{"redriven from", quote(d.OriginalID)})
	}
	if f := d.Failure; f != nil {
		facts = append(facts,
			table.Row{"failed in", "topic " + quote(f.OriginalTopic) + ", message " + quote(f.OriginalID)},
			table.Row{"given up by", fmt.Sprintf("group %s after %d attempts", quote(f.Group), f.Attempts)},
			table.Row{"failed", a.moment(f.FailedAt)},
			table.Row{"last error", name(f.LastError)})
	}
	if err := renderTable(a.out, nil, facts); err != nil {
		return err
	}
	if len(d.Groups) == 0 {
		if err := a.line("\nno group is registered for the topic"); err != nil {
			return err
		}
	} else {
		rows := make([]table.Row, len(d.Groups))
		for i, g := range d.Groups {
			rows[i] = table.Row{quote(g.Group), g.state(), g.Attempts, g.Deliveries, g.Lease, name(g.Owner), name(g.LastError)}
		}
		fmt.Fprintln(a.out)
		if err := renderTable(a.out, table.Row{"group", "state", "attempts", "deliveries", "lease", "owner", "last error"}, rows); err != nil {
			return err
		}
	}
	return a.line("\n%s\n%s", d.Payload.heading(), d.Payload.Data)
}

// state is where a group stands, in a few words.
func (g stateDoc) state() string {
	wait := time.Duration(g.VisibleInMS) * time.Millisecond
	held := g.Lease == operator.Held.String()
	switch {
	case g.Settled:
		return "settled"
	case g.Stored && g.Postponed && wait > 0:
		return "postponed for " + age(wait)
	case g.Stored && wait > 0:
		return "again in " + age(wait)
	case g.Suspect:
		return "pending; an owner that vanished may have had it"
	case held:
		return "pending; its partition is being worked on"
	}
	return "pending; nobody works on its partition"
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
		RunE: a.lasting(func() error { return yes.check(a) }, func(ctx context.Context, s *session) error {
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
	return fmt.Sprintf("This deletes %v: %d bytes, published %s; %d of %d groups have not settled it.",
		t, len(m.Payload), a.moment(m.PublishedAt), pending, len(m.Groups))
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
	c := &cobra.Command{
		Use: "redrive", Short: "Return a dead letter to where it failed",
		Long: "Return a dead letter, named by its identity on the dead-letter topic, to where it failed: for the group\n" +
			"that failed it, and with all its attempts again.",
		Example: "  mqctl message redrive --tenant acme --topic orders_dlq --key customer-17 --id order-4711",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			if err := s.queue.Redrive(ctx, t.tenantID(), t.topic, t.key, t.id); err != nil {
				return err
			}
			return a.emit(identityDoc{t.tenant, t.topic, t.key, t.id, "redriven"}, func() error { return a.line("redriven: %v", &t) })
		}),
	}
	t.need(c, "tenant", "topic", "key", "id")
	c.Flags().Lookup("topic").Usage = "the dead-letter topic"
	return c
}
