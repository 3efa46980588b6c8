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
	Group         string `json:"group"`
	Paused        bool   `json:"paused"`
	Settled       bool   `json:"settled"`
	Stored        bool   `json:"stored"`
	Postponed     bool   `json:"postponed"`
	Attempts      int    `json:"attempts"`
	Deliveries    int    `json:"deliveries"`
	VisibleInMS   int64  `json:"visible_in_ms"`
	LastError     string `json:"last_error"`
	Suspect       bool   `json:"suspect"`
	InHand        bool   `json:"in_hand"`
	Owner         string `json:"owner"`
	Lease         string `json:"lease"`
	HeadID        string `json:"head_id"`
	HeadWaitingMS int64  `json:"head_waiting_ms"`
}

func newMessageDoc(m operator.MessageDetail, heads map[string]head, asHex, full bool) messageDoc {
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
			g.Group, g.Paused, g.Settled, g.Stored, g.Postponed, g.Attempts, g.Deliveries, g.VisibleIn.Milliseconds(), g.LastError, g.Suspect,
			g.InHand, g.Owner, g.Lease.String(), heads[g.Group].id, heads[g.Group].age.Milliseconds(),
		})
	}
	return d
}

func (a *app) messageShow() *cobra.Command {
	var t target
	var raw, full, asHex, yes bool
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
			if raw && a.outTerminal && !yes && !isHarmless(m.Payload) {
				return usagef("the payload has what can disturb a terminal: write it to a file, --raw > payload, or show it by --hex; --yes writes it all the same")
			}
			if raw {
				_, err := a.out.Write(m.Payload)
				return err
			}
			heads, err := s.heads(ctx, &t)
			if err != nil {
				return err
			}
			d := newMessageDoc(m, heads, asHex, full)
			return a.emit(d, func() error { return a.describe(d) })
		}),
	}
	t.need(c, "tenant", "topic", "key", "id")
	c.Flags().BoolVar(&raw, "raw", false, "write the payload alone, byte for byte")
	c.Flags().BoolVar(&yes, "yes", false, "write to a terminal what may disturb it, with --raw")
	c.Flags().BoolVar(&full, "full", false, "show all of the payload")
	c.Flags().BoolVar(&asHex, "hex", false, "show the payload in hexadecimal")
	return c
}

// heads are what the groups of a message's topic are to settle next in its
// partition.
func (s *session) heads(ctx context.Context, t *target) (map[string]head, error) {
	groups, err := s.groupsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	found := make(map[string]head, len(groups))
	for _, g := range groups {
		if found[g.name], err = s.head(ctx, t, g); err != nil {
			return nil, fmt.Errorf("find what group %q is to settle next of %v: %w", g.name, t, err)
		}
	}
	return found, nil
}

// describe shows a message to a person.
func (a *app) describe(d messageDoc) error {
	facts := []table.Row{
		{"tenant", quote(d.Tenant)},
		{"topic", quote(d.Topic)},
		{"partition key", quote(d.PartitionKey)},
		{"id", quote(d.ID)},
		{"offset", d.Offset},
		{"published", a.zonedMoment(d.PublishedAt)},
		{"metadata", printable(string(d.Metadata))},
	}
	if d.TargetGroup != "" {
		facts = append(facts, table.Row{"only for group", quote(d.TargetGroup)}, table.Row{"redriven from", quote(d.OriginalID)})
	}
	if f := d.Failure; f != nil {
		facts = append(facts,
			table.Row{"failed in", "topic " + quote(f.OriginalTopic) + ", message " + quote(f.OriginalID)},
			table.Row{"given up by", fmt.Sprintf("group %s after %s", quote(f.Group), plural(f.Attempts, "attempt"))},
			table.Row{"failed", a.zonedMoment(f.FailedAt)},
			table.Row{"last error", name(f.LastError)})
	}
	if err := renderTable(a.out, 0, nil, facts); err != nil {
		return err
	}
	if len(d.Groups) == 0 {
		if err := a.line("\nno group is registered for the topic"); err != nil {
			return err
		}
	} else {
		rows := make([]table.Row, len(d.Groups))
		for i, g := range d.Groups {
			rows[i] = table.Row{quote(g.Group), g.state(d.ID), g.head(d.ID), g.Attempts, g.Deliveries, g.Lease, name(g.Owner), name(g.LastError)}
		}
		fmt.Fprintln(a.out)
		header := table.Row{"group", "state", "head", "attempts", "deliveries", "lease", "owner", "last error"}
		if err := renderTable(a.out, a.width(), header, rows); err != nil {
			return err
		}
	}
	return a.line("\n%s\n%s", d.Payload.heading(), d.Payload.Data)
}

// head is the message that the group is to settle next, and since when it waits.
func (g stateDoc) head(id string) string {
	wait := age(time.Duration(g.HeadWaitingMS) * time.Millisecond)
	switch g.HeadID {
	case "":
		return "-"
	case id:
		return "this, waiting " + wait
	}
	return quote(g.HeadID) + ", waiting " + wait
}

// state is where a group stands with the message of an id, in a few words.
func (g stateDoc) state(id string) string {
	switch {
	case g.Settled:
		return "settled"
	case g.Paused:
		return "paused; " + g.pending(id)
	}
	return g.pending(id)
}

func (g stateDoc) pending(id string) string {
	wait := time.Duration(g.VisibleInMS) * time.Millisecond
	held := g.Lease == operator.Held.String()
	switch {
	case g.Stored && g.Postponed && wait > 0:
		return "postponed for " + age(wait)
	case g.Stored && wait > 0:
		return "again in " + age(wait)
	case g.Suspect && held:
		return fmt.Sprintf("an owner that vanished may have had it; %s holds it now", quote(g.Owner))
	case g.Suspect:
		return "an owner that vanished may have had it; nobody holds it now"
	case g.InHand && g.HeadID == id:
		return "its owner is at it"
	case g.InHand:
		return "its owner may be at it"
	case held && g.HeadID != id:
		return "waits for those before it"
	case held:
		return "its owner has not begun"
	}
	return "nobody works on its partition"
}
