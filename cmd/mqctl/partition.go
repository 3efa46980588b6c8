package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

type messageRow struct {
	Tenant       string    `json:"tenant"`
	Topic        string    `json:"topic"`
	PartitionKey string    `json:"partition_key"`
	ID           string    `json:"id"`
	Offset       uint64    `json:"offset"`
	PublishedAt  time.Time `json:"published_at"`
	placed
}

// stmtOfPartition (PRIMARY) reads as many rows as it returns. It is the one
// statement of this tool: package operator knows messages by their ids only.
const stmtOfPartition = "SELECT `offset`, id, published_at FROM queue_messages FORCE INDEX (PRIMARY)" +
	" WHERE tenant = ? AND topic = ? AND partition_key = ? AND `offset` > ? ORDER BY `offset` LIMIT ?"

func (a *app) messageList() *cobra.Command {
	var p page
	var after uint64
	l := &listing[messageRow]{
		page:   &p,
		header: table.Row{"offset", "id", "published"},
		cells:  func(r messageRow) table.Row { return table.Row{r.Offset, quote(r.ID), a.moment(r.PublishedAt)} },
	}
	l.fetch = func(ctx context.Context, s *session, _ tenants.ID) ([]messageRow, error) {
		rows, err := ofPartition(ctx, s, &l.target, after, p.Limit)
		if err != nil {
			return nil, fmt.Errorf("list the messages of %v: %w", &l.target, err)
		}
		return rows, nil
	}
	check := func() error {
		l.ids = []tenants.ID{l.tenantID()}
		return p.check(&l.scope)
	}
	c := &cobra.Command{
		Use: "list", Short: "List the messages of a partition, the oldest first",
		Long: "List the messages of a partition, the oldest first. The first one behind a group's watermark, which mqctl\n" +
			"offsets shows, is the one that holds the group up: give the watermark to --after.",
		Example: "  mqctl message list --tenant acme --topic orders --key customer-17 --after 4711",
		RunE:    a.brief(check, func(ctx context.Context, s *session) error { return l.show(ctx, a, s) }),
	}
	l.need(c, "tenant", "topic", "key")
	c.Flags().IntVar(&p.Limit, "limit", operator.DefaultLimit, fmt.Sprintf("messages, 1 to %d", operator.MaxLimit))
	c.Flags().Uint64Var(&after, "after", 0, "begin behind this `offset`")
	return c
}

func ofPartition(ctx context.Context, s *session, t *target, after uint64, limit int) ([]messageRow, error) {
	found, err := s.db.QueryContext(ctx, stmtOfPartition, t.tenant, t.topic, t.key, after, limit)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []messageRow
	for found.Next() {
		r := messageRow{Tenant: t.tenant, Topic: t.topic, PartitionKey: t.key}
		var published int64
		if err := found.Scan(&r.Offset, &r.ID, &published); err != nil {
			return nil, err
		}
		r.PublishedAt, r.Cursor = time.UnixMilli(published).UTC(), strconv.FormatUint(r.Offset, 10)
		rows = append(rows, r)
	}
	return rows, found.Err()
}
