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
	// quiet says what does not show in an empty listing though all is well, or "".
	quiet string
	// empty may tell why nothing is listed for the one tenant, and whether it did.
	// Nil: it cannot.
	empty func(context.Context, *session) (bool, error)
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
	more := make([]bool, len(lists))
	if l.page != nil {
		for i, rows := range lists {
			if more[i] = len(rows) > l.page.limit; more[i] {
				lists[i] = rows[:l.page.limit]
			}
		}
	}
	rows := slices.Concat(lists...)
	if rows == nil {
		rows = []R{} // in JSON
	}
	err = a.emit(rows, func() error {
		if len(rows) == 0 {
			a.note("nothing to list%s", l.quiet)
			return nil
		}
		cells := make([]table.Row, len(rows))
		for i, r := range rows {
			cells[i] = l.cells(r)
		}
		return renderTable(a.out, a.width(), a.zoned(l.header), cells)
	})
	if err == nil && len(rows) == 0 && !l.all {
		err = l.explain(ctx, a, s)
	}
	l.noteMore(a, lists, more)
	return err
}

// explain tells why a tenant's listing is empty where that is not what was asked
// for.
func (l *listing[R]) explain(ctx context.Context, a *app, s *session) error {
	if l.empty != nil {
		if done, err := l.empty(ctx, s); done || err != nil {
			return err
		}
	}
	return a.noteAbsent(ctx, s, &l.target)
}

// noteMore tells how to go on where a tenant has more rows than are shown.
func (l *listing[R]) noteMore(a *app, lists [][]R, more []bool) {
	for i, rows := range lists {
		if !more[i] {
			continue
		}
		if last, ok := any(rows[len(rows)-1]).(interface{ cursor() string }); ok {
			tenant := string(l.ids[i])
			a.note("%s of tenant %s shown, and there are more:\n  %s", plural(len(rows), "row"), quote(tenant),
				again(a.command, map[string]string{"tenant": tenant, "all-tenants": "", "after": last.cursor()}))
		}
	}
}

// zoned adds the zone to the titles of columns that have moments.
func (a *app) zoned(header table.Row) table.Row {
	header = slices.Clone(header)
	for i, title := range header {
		if slices.Contains([]any{"seen", "published", "failed", "since", "started"}, title) {
			header[i] = fmt.Sprintf("%s (%s)", title, a.zone())
		}
	}
	return header
}

// maxRows is how many rows can be asked for: a listing reads one more, to know
// whether there is more.
const maxRows = operator.MaxLimit - 1

// page is a part of a listing, as flags say.
type page struct {
	operator.Page // its limit is one above the one below
	limit         int
	after         string
}

func (p *page) flags(c *cobra.Command) {
	c.Flags().IntVar(&p.limit, "limit", operator.DefaultLimit, fmt.Sprintf("rows of a tenant, 1 to %d", maxRows))
	c.Flags().StringVar(&p.after, "after", "", "go on behind the row with this `cursor`, for one tenant")
}

// check takes the flags over.
func (p *page) check(s *scope) error {
	if p.limit < 1 || p.limit > maxRows {
		return fmt.Errorf("--limit %d: want 1 to %d", p.limit, maxRows)
	}
	p.Topic, p.Group, p.Limit = s.topic, s.group, p.limit+1
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
