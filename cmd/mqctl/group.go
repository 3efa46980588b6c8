package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

type groupRow struct {
	Tenant      string    `json:"tenant"`
	Topic       string    `json:"topic"`
	Group       string    `json:"group"`
	Paused      bool      `json:"paused"`
	Subscribers int       `json:"subscribers"`
	SeenAt      time.Time `json:"seen_at"`
	StartOffset uint64    `json:"start_offset"`
	Lag         count     `json:"lag"`
	OldestMS    int64     `json:"oldest_ms"`
}

func (a *app) groups() *cobra.Command {
	l := &listing[groupRow]{
		header: table.Row{"tenant", "topic", "group", "paused", "subscribers", "seen", "lag", "oldest"},
		cells: func(r groupRow) table.Row {
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.Group), mark(r.Paused, "paused"), r.Subscribers, a.moment(r.SeenAt),
				r.Lag, oldest(r.Lag.N, time.Duration(r.OldestMS)*time.Millisecond),
			}
		},
	}
	l.fetch = func(ctx context.Context, s *session, id tenants.ID) ([]groupRow, error) {
		list, err := s.Groups(ctx, id, l.topic)
		rows := make([]groupRow, len(list))
		for i, g := range list {
			rows[i] = groupRow{
				string(g.Tenant), g.Topic, g.Group, g.Paused, g.Subscribers, g.SeenAt.UTC(), g.StartOffset,
				count{g.Lag.Messages, g.Lag.AtLeast},
				g.Lag.Oldest.Milliseconds(),
			}
		}
		return rows, err
	}
	c := &cobra.Command{
		Use: "groups", Short: "List the consumer groups, paused or not, and who is there",
		Long: "List the consumer groups, paused or not, and who is there.\n\n" +
			"A subscriber counts while its heartbeat is alive, which it has while it finds work of\n" +
			"the tenant, and for a lease duration after.\n" +
			"\"Seen\" is when the group last registered, which subscribers renew every hour or so.",
		Example: "  mqctl groups --tenant acme --topic orders",
		RunE:    l.run(a),
	}
	l.flags(c, "topic")
	return c
}

type pausedDoc struct {
	Tenant string `json:"tenant"`
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Paused bool   `json:"paused"`
}

func (a *app) pause() *cobra.Command {
	return a.switchGroup("pause", "Stop deliveries to a group in every process", "paused", true)
}

func (a *app) resume() *cobra.Command {
	return a.switchGroup("resume", "Undo pause", "resumed", false)
}

func (a *app) switchGroup(use, short, done string, pause bool) *cobra.Command {
	var t target
	c := &cobra.Command{
		Use: use, Short: short,
		Long: short + ".\n\nEvery process follows within two seconds; deliveries in flight may settle.\n" +
			"It may be repeated, and survives restarts.",
		Example: "  mqctl " + use + " --tenant acme --topic orders --group billing",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			change := s.queue.Resume
			if pause {
				change = s.queue.Pause
			}
			if err := change(ctx, t.tenantID(), t.topic, t.group); err != nil {
				return err
			}
			return a.emit(pausedDoc{t.tenant, t.topic, t.group, pause}, func() error { return a.line("%s: %v", done, &t) })
		}),
	}
	t.need(c, "tenant", "topic", "group")
	return c
}

func (a *app) group() *cobra.Command {
	c := &cobra.Command{
		Use: "group", Short: "Work on a consumer group",
		Example: "  mqctl group drop --tenant acme --topic orders --group billing",
	}
	c.AddCommand(a.groupDrop())
	return c
}

type droppedDoc struct {
	Tenant  string `json:"tenant"`
	Topic   string `json:"topic"`
	Group   string `json:"group"`
	Dropped bool   `json:"dropped"`
}

func (a *app) groupDrop() *cobra.Command {
	var t target
	var yes confirmation
	c := &cobra.Command{
		Use: "drop", Short: "Forget a group that is gone for good",
		Long: "Forget a group that is gone for good: messages no longer wait for it. Those that all other groups have\n" +
			"settled are removed by the next clean-up of a subscriber of the topic, or by mqctl purge. Stop the group's\n" +
			"subscribers first: one that still runs registers the group again.",
		Example: "  mqctl group drop --tenant acme --topic orders --group billing",
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			var plan string
			err := a.within(ctx, func(ctx context.Context) (err error) {
				plan, err = planDrop(ctx, s, &t)
				return err
			})
			if err != nil {
				return err
			}
			if err := yes.ask(ctx, a, plan); err != nil {
				return err
			}
			if err := s.queue.DropGroup(ctx, t.tenantID(), t.topic, t.group); err != nil {
				return err
			}
			return a.emit(droppedDoc{t.tenant, t.topic, t.group, true}, func() error { return a.line("dropped: %v", &t) })
		}),
	}
	t.need(c, "tenant", "topic", "group")
	yes.flag(c)
	return c
}

func planDrop(ctx context.Context, s *session, t *target) (string, error) {
	groups, err := s.Groups(ctx, t.tenantID(), t.topic)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(groups, func(g operator.Group) bool { return g.Group == t.group })
	if i < 0 {
		return "", fmt.Errorf("%v: the group is not registered there, see mqctl groups: %w", t, backend.ErrNotFound)
	}
	e, err := s.Estimate(ctx, t.tenantID(), t.topic, operator.Scope{Group: t.group})
	if err != nil {
		return "", err
	}
	lag := operator.Count{N: groups[i].Lag.Messages, AtLeast: groups[i].Lag.AtLeast}
	plan := fmt.Sprintf("This drops %v. No longer kept for it: %s. Removed: %s, %s.",
		t, lag.Of("message"), e.States.Of("delivery state"), e.Leases.Of("lease"))
	if len(groups) == 1 {
		plan += "\nThe topic has no other group: its messages stay until one subscribes and cleans up, or until mqctl purge."
	} else {
		plan += "\nMessages that no other group waits for are removed by the next clean-up of another group's subscriber, or by mqctl purge."
	}
	switch n := groups[i].Subscribers; {
	case n > 0:
		plan += fmt.Sprintf("\nWARNING: it has %s alive, which register it again: stop them first.", plural(n, "subscriber"))
	case e.Held.N > 0:
		plan += fmt.Sprintf("\nWARNING: %s held: somebody works for it, who registers it again. Stop him first.", e.Held.Of("lease"))
	case e.Stale.N > 0:
		plan += fmt.Sprintf("\nWARNING: owners of %s have vanished, and may come back and register it again.", e.Stale.Of("lease"))
	}
	return plan, nil
}
