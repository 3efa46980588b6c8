package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

// listing is a command that lists rows of one or several tenants.
type listing[R any] struct {
	scope
	header table.Row
	fetch  func(context.Context, *session, tenants.ID) ([]R, error)
	cells  func(R) table.Row
	page   *page // nil: all rows are listed
}

// flags adds those of the scope and the page.
func (l *listing[R]) flags(c *cobra.Command, narrow ...string) {
	l.scope.flags(c, narrow...)
	if l.page != nil {
		l.page.flags(c)
	}
}

// run is the RunE of a listing's command.
func (l *listing[R]) run(a *app) func(*cobra.Command, []string) error {
	return a.brief(l.check, func(ctx context.Context, s *session) error { return l.show(ctx, a, s) })
}

func (l *listing[R]) check() error {
	if err := l.scope.check(); err != nil || l.page == nil {
		return err
	}
	return l.page.check(&l.scope)
}

// show lists once.
func (l *listing[R]) show(ctx context.Context, a *app, s *session) error {
	lists, err := each(ctx, l.ids, func(ctx context.Context, id tenants.ID) ([]R, error) { return l.fetch(ctx, s, id) })
	if err != nil {
		return err
	}
	rows := slices.Concat(lists...)
	if rows == nil {
		rows = []R{} // in JSON
	}
	return a.emit(rows, func() error {
		if len(rows) == 0 {
			a.note("nothing to list")
			return nil
		}
		cells := make([]table.Row, len(rows))
		for i, r := range rows {
			cells[i] = l.cells(r)
		}
		if err := renderTable(a.out, l.header, cells); err != nil {
			return err
		}
		l.noteMore(a, lists)
		return nil
	})
}

// noteMore tells how to go on where a tenant's rows have reached the limit.
func (l *listing[R]) noteMore(a *app, lists [][]R) {
	for i, rows := range lists {
		if l.page == nil || len(rows) < l.page.Limit {
			continue
		}
		if last, ok := any(rows[len(rows)-1]).(interface{ cursor() string }); ok {
			a.note("%d rows of tenant %s are shown, and there may be more: --tenant %s --after %s",
				len(rows), quote(string(l.ids[i])), quote(string(l.ids[i])), last.cursor())
		}
	}
}

// page is a part of a listing, as flags say.
type page struct {
	operator.Page
	after string
}

func (p *page) flags(c *cobra.Command) {
	c.Flags().IntVar(&p.Limit, "limit", operator.DefaultLimit, fmt.Sprintf("rows of a tenant, 1 to %d", operator.MaxLimit))
	c.Flags().StringVar(&p.after, "after", "", "go on behind the row with this `cursor`, for one tenant")
}

// check takes the flags over.
func (p *page) check(s *scope) error {
	if p.Limit < 1 || p.Limit > operator.MaxLimit {
		return fmt.Errorf("--limit %d: want 1 to %d", p.Limit, operator.MaxLimit)
	}
	p.Topic, p.Group = s.topic, s.group
	if p.after == "" {
		return nil
	}
	if s.all {
		return errors.New("--after is a place in the rows of one tenant: give --tenant")
	}
	doc, err := base64.RawURLEncoding.DecodeString(p.after)
	if err == nil {
		err = json.Unmarshal(doc, &p.After)
	}
	if err != nil {
		return fmt.Errorf("--after %q is no cursor; take one from a listing, where it is told below the table and in JSON is a row's \"cursor\"", p.after)
	}
	return nil
}

// cursor is a place in a listing as --after takes it.
func cursor(c operator.Cursor) string {
	doc, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(doc)
}

// placed is the end of rows that have a place in their listing.
type placed struct {
	Cursor string `json:"cursor"`
}

func (p placed) cursor() string { return p.Cursor }
