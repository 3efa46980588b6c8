package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/tenants"
)

type topicRow struct {
	Tenant     string `json:"tenant"`
	Topic      string `json:"topic"`
	Messages   count  `json:"messages"`
	Partitions count  `json:"partitions"`
	Groups     int    `json:"groups"`
}

func (a *app) topics() *cobra.Command {
	l := &listing[topicRow]{
		header: table.Row{"tenant", "topic", "messages", "partitions", "groups"},
		cells: func(r topicRow) table.Row {
			return table.Row{quote(r.Tenant), quote(r.Topic), r.Messages, r.Partitions, r.Groups}
		},
		fetch: func(ctx context.Context, s *session, id tenants.ID) ([]topicRow, error) {
			list, err := s.Topics(ctx, id)
			rows := make([]topicRow, len(list))
			for i, t := range list {
				rows[i] = topicRow{string(t.Tenant), t.Topic, count(t.Messages), count(t.Partitions), t.Groups}
			}
			return rows, err
		},
	}
	c := &cobra.Command{
		Use: "topics", Short: "List the topics that have messages or groups",
		Example: "  mqctl topics --tenant acme",
		RunE:    l.run(a),
	}
	l.flags(c)
	return c
}
