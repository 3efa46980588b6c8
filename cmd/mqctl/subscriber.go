package main

import (
	"context"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/tenants"
)

type subscriberRow struct {
	Tenant         string    `json:"tenant"`
	Topic          string    `json:"topic"`
	Group          string    `json:"group"`
	Name           string    `json:"name"`
	Alive          bool      `json:"alive"`
	HeartbeatAgeMS int64     `json:"heartbeat_age_ms"`
	StartedAt      time.Time `json:"started_at"`
	Leases         count     `json:"leases"`
	Expired        count     `json:"expired"`
	placed
}

func (a *app) subscribers() *cobra.Command {
	var p page
	l := &listing[subscriberRow]{
		page:   &p,
		quiet:  "; idle subscribers do not show",
		header: table.Row{"tenant", "topic", "group", "name", "alive", "heartbeat", "started", "leases", "expired"},
		cells: func(r subscriberRow) table.Row {
			alive := "gone"
			if r.Alive {
				alive = "alive"
			}
			heartbeat, started := "-", "-"
			if !r.StartedAt.IsZero() { // it has a heartbeat
				heartbeat, started = age(time.Duration(r.HeartbeatAgeMS)*time.Millisecond)+" ago", a.moment(r.StartedAt)
			}
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.Group), quote(r.Name), alive, heartbeat, started, r.Leases, r.Expired,
			}
		},
		fetch: func(ctx context.Context, s *session, id tenants.ID) ([]subscriberRow, error) {
			list, err := s.Subscribers(ctx, id, p.Page)
			rows := make([]subscriberRow, len(list))
			for i, o := range list {
				rows[i] = subscriberRow{
					string(o.Tenant), o.Topic, o.Group, o.Name, o.Alive, o.HeartbeatAge.Milliseconds(), o.StartedAt.UTC(),
					count(o.Leases), count(o.Expired),
					placed{cursor(o.Cursor())},
				}
			}
			return rows, err
		},
	}
	c := &cobra.Command{
		Use: "subscribers", Short: "List the processes that consume, or did until recently",
		Long: "List the processes that consume, or did until recently. A subscriber has a heartbeat while it finds work of\n" +
			"the tenant, and for a lease duration after: none at all is no sign of trouble where nothing waits. Leases are those it\n" +
			"holds now, and expired those it has left, counted among the first 10,000 of its group. One that has leases\n" +
			"and no heartbeat any more shows a dash for what only a heartbeat tells.",
		Example: "  mqctl subscribers --tenant acme --topic orders",
		RunE:    l.run(a),
	}
	l.flags(c, "topic", "group")
	return c
}
