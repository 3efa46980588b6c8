package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/tenants"
)

// defaultWatch is the interval of lag --watch without one.
const defaultWatch = 2 * time.Second

type lagRow struct {
	Tenant   string `json:"tenant"`
	Topic    string `json:"topic"`
	Group    string `json:"group"`
	Messages count  `json:"messages"`
	OldestMS int64  `json:"oldest_ms"`
	Paused   bool   `json:"paused"`
}

func (a *app) lag() *cobra.Command {
	var watch time.Duration
	l := &listing[lagRow]{
		header: table.Row{"tenant", "topic", "group", "messages", "oldest", ""},
		cells: func(r lagRow) table.Row {
			paused := ""
			if r.Paused {
				paused = "paused"
			}
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.Group), r.Messages,
				oldest(r.Messages.N, time.Duration(r.OldestMS)*time.Millisecond), paused,
			}
		},
	}
	l.fetch = func(ctx context.Context, s *session, id tenants.ID) ([]lagRow, error) {
		list, err := s.Groups(ctx, id, l.topic)
		var rows []lagRow
		for _, g := range list {
			if l.group == "" || g.Group == l.group {
				rows = append(rows, lagRow{
					string(g.Tenant), g.Topic, g.Group, count{g.Lag.Messages, g.Lag.AtLeast}, g.Lag.Oldest.Milliseconds(), g.Paused,
				})
			}
		}
		return rows, err
	}
	c := &cobra.Command{
		Use: "lag [--watch [interval]]", Short: "Show how far groups are behind",
		Long: "Show how far groups are behind, by topic and group: the messages stored that the group has not settled,\n" +
			"and the age of the oldest. With --watch it repeats until interrupted; in JSON that is a document a line.",
		Example: "  mqctl lag --tenant acme\n  mqctl lag --all-tenants --watch 5s",
		Args:    cobra.MaximumNArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		check := func() error {
			if len(args) == 1 { // --watch 5s, where pflag sees a flag without its value and an argument
				if !c.Flags().Changed("watch") {
					return fmt.Errorf("unknown argument %q; an interval goes with --watch", args[0])
				}
				var err error
				if watch, err = time.ParseDuration(args[0]); err != nil {
					return fmt.Errorf("--watch %q: want an interval such as 5s", args[0])
				}
			}
			if c.Flags().Changed("watch") && watch < 100*time.Millisecond {
				return fmt.Errorf("--watch %v: want 100ms or more", watch)
			}
			return l.check()
		}
		return a.lasting(check, func(ctx context.Context, s *session) error {
			show := func(ctx context.Context) error { return l.show(ctx, a, s) }
			if watch == 0 {
				return a.within(ctx, show)
			}
			return a.repeat(ctx, watch, show)
		})(c, nil)
	}
	l.flags(c, "topic", "group")
	c.Flags().DurationVar(&watch, "watch", 0, "repeat at this `interval`")
	c.Flags().Lookup("watch").NoOptDefVal = defaultWatch.String()
	return c
}

// repeat shows something at an interval until it is interrupted, which is no
// failure. Only the first time must succeed: somebody who watches a database
// wants to see it come back.
func (a *app) repeat(ctx context.Context, interval time.Duration, show func(context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		if !a.json {
			fmt.Fprintln(a.out, a.now().Format(time.TimeOnly+" -07:00"))
		}
		switch err := a.within(ctx, show); {
		case errors.Is(ctx.Err(), context.Canceled):
			return nil
		case err != nil && first:
			return err
		case err != nil:
			a.report(err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
