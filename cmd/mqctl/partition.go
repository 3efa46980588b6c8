package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

type messageRow struct {
	Tenant       string        `json:"tenant"`
	Topic        string        `json:"topic"`
	PartitionKey string        `json:"partition_key"`
	ID           string        `json:"id"`
	Offset       uint64        `json:"offset"`
	PublishedAt  time.Time     `json:"published_at"`
	States       []deliveryDoc `json:"states"`
	placed
}

// deliveryDoc is what a group knows of a message that it is not simply yet to
// get.
type deliveryDoc struct {
	Group       string `json:"group"`
	Settled     bool   `json:"settled"`
	Postponed   bool   `json:"postponed"`
	Attempts    int    `json:"attempts"`
	VisibleInMS int64  `json:"visible_in_ms"`
	LastError   string `json:"last_error"`
}

func (d deliveryDoc) String() string {
	text := quote(d.Group) + ": "
	wait := time.Duration(d.VisibleInMS) * time.Millisecond
	switch {
	case d.Settled:
		return text + "settled"
	case d.Postponed && wait > 0:
		text += "postponed for " + age(wait)
	case wait > 0:
		text += "again in " + age(wait)
	default:
		text += "may be delivered now"
	}
	if d.Attempts > 0 {
		text += ", " + plural(d.Attempts, "attempt")
	}
	if d.LastError != "" {
		text += ", " + shorten(d.LastError)
	}
	return text
}

func (a *app) messageList() *cobra.Command {
	var p page
	var after uint64
	l := &listing[messageRow]{
		page:   &p,
		header: table.Row{"offset", "id", "published", "state"},
		cells: func(r messageRow) table.Row {
			states := make([]string, len(r.States))
			for i, s := range r.States {
				states[i] = s.String()
			}
			return table.Row{r.Offset, quote(r.ID), a.moment(r.PublishedAt), mark(len(states) > 0, strings.Join(states, "; "))}
		},
	}
	l.fetch = func(ctx context.Context, s *session, _ tenants.ID) ([]messageRow, error) {
		rows, err := s.ofPartition(ctx, &l.target, after, p.Limit)
		if err == nil && len(rows) > 0 {
			err = s.findStates(ctx, &l.target, rows)
		}
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
			"offsets shows, is the one that holds the group up: give the watermark to --after.\n\n" +
			"\"State\" is what groups know of a message that has failed, was postponed, or was settled while one before it\n" +
			"was not; for most there is nothing. message show tells where every group stands with one.",
		Example: "  mqctl message list --tenant acme --topic orders --key customer-17 --after 4711",
		RunE:    a.brief(check, func(ctx context.Context, s *session) error { return l.show(ctx, a, s) }),
	}
	l.need(c, "tenant", "topic", "key")
	c.Flags().IntVar(&p.limit, "limit", operator.DefaultLimit, fmt.Sprintf("messages, 1 to %d", maxRows))
	c.Flags().Uint64Var(&after, "after", 0, "begin behind this `offset`")
	return c
}

func (s *session) ofPartition(ctx context.Context, t *target, after uint64, limit int) ([]messageRow, error) {
	found, err := s.db.QueryContext(ctx, stmtOfPartition, t.tenant, t.topic, t.key, after, limit)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []messageRow
	for found.Next() {
		r := messageRow{Tenant: t.tenant, Topic: t.topic, PartitionKey: t.key, States: []deliveryDoc{}}
		var published int64
		if err := found.Scan(&r.Offset, &r.ID, &published); err != nil {
			return nil, err
		}
		r.PublishedAt, r.Cursor = time.UnixMilli(published).UTC(), strconv.FormatUint(r.Offset, 10)
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// findStates fills in what the groups know of messages that follow one another.
func (s *session) findStates(ctx context.Context, t *target, rows []messageRow) error {
	groups, err := s.groupsOf(ctx, t)
	if err != nil {
		return err
	}
	at := make(map[uint64]*messageRow, len(rows))
	for i := range rows {
		at[rows[i].Offset] = &rows[i]
	}
	for _, g := range groups {
		if err := s.statesOf(ctx, t, g.name, rows[0].Offset, rows[len(rows)-1].Offset, at); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
	}
	return nil
}

func (s *session) statesOf(ctx context.Context, t *target, group string, first, last uint64, at map[uint64]*messageRow) error {
	found, err := s.db.QueryContext(ctx, stmtStates, t.tenant, group, t.topic, t.key, first, last)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var offset uint64
		d := deliveryDoc{Group: group}
		if err := found.Scan(&offset, &d.Settled, &d.Postponed, &d.Attempts, &d.VisibleInMS, &d.LastError); err != nil {
			return err
		}
		if d.Settled {
			d.VisibleInMS = 0
		}
		if row := at[offset]; row != nil { // gone in between, or back
			row.States = append(row.States, d)
		}
	}
	return found.Err()
}

// head is the first message of a partition that a group has not settled.
type head struct {
	offset uint64
	id     string // "" if there is none
	age    time.Duration
}

func (s *session) head(ctx context.Context, t *target, g groupAt) (head, error) {
	mark := g.start
	err := s.db.QueryRowContext(ctx, stmtMark, t.tenant, t.topic, t.key, g.name).Scan(&mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return head{}, err
	}
	var h head
	var age int64
	err = s.db.QueryRowContext(ctx, stmtHead, g.name, t.tenant, t.topic, t.key, mark, g.name).Scan(&h.offset, &h.id, &age)
	if errors.Is(err, sql.ErrNoRows) {
		return head{}, nil
	}
	h.age = time.Duration(age) * time.Millisecond
	return h, err
}
