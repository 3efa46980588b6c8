package main

import (
	"context"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/tenants"
)

type offsetRow struct {
	Tenant       string `json:"tenant"`
	Topic        string `json:"topic"`
	Group        string `json:"group"`
	PartitionKey string `json:"partition_key"`
	Watermark    uint64 `json:"watermark"`
	Head         uint64 `json:"head"`
	Tail         uint64 `json:"tail"`
	Pending      count  `json:"pending"`
	OldestMS     int64  `json:"oldest_ms"`
	Owner        string `json:"owner"`
	Lease        string `json:"lease"`
	Paused       bool   `json:"paused"`
	placed
}

func (a *app) offsets() *cobra.Command {
	var p page
	l := &listing[offsetRow]{
		page:   &p,
		header: table.Row{"tenant", "topic", "group", "key", "pending", "oldest", "watermark", "head", "tail", "paused", "lease", "owner"},
		cells: func(r offsetRow) table.Row {
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.Group), quote(r.PartitionKey), r.Pending,
				oldest(r.Pending.N, time.Duration(r.OldestMS)*time.Millisecond), r.Watermark, r.Head, r.Tail, mark(r.Paused, "paused"), r.Lease, name(r.Owner),
			}
		},
		fetch: func(ctx context.Context, s *session, id tenants.ID) ([]offsetRow, error) {
			list, err := s.Offsets(ctx, id, p.Page)
			rows := make([]offsetRow, len(list))
			for i, o := range list {
				rows[i] = offsetRow{
					string(o.Tenant), o.Topic, o.Group, o.PartitionKey, o.Watermark, o.Head, o.Tail, count(o.Pending),
					o.Oldest.Milliseconds(), o.Owner, o.State.String(), o.Paused,
					placed{cursor(o.Cursor())},
				}
			}
			return rows, err
		},
	}
	c := &cobra.Command{
		Use: "offsets", Short: "Show where groups stand in partitions that have messages",
		Long: "Show where groups stand in partitions that have messages. All up to the watermark is settled; head and\n" +
			"tail are the first and the last message stored. Pending are those the group has not settled.",
		Example: "  mqctl offsets --tenant acme --topic orders --group billing",
		RunE:    l.run(a),
	}
	l.flags(c, "topic", "group")
	return c
}

// name shows one that may be missing.
func name(s string) string {
	if s == "" {
		return "-"
	}
	return quote(s)
}
