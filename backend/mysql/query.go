package mysql

import (
	"context"
	"errors"
	"strings"
)

// query is a statement under construction, with its arguments.
type query struct {
	text strings.Builder
	args []any
}

// newQuery begins a statement. rows is the number of list entries expected.
func newQuery(rows int, text string, args ...any) *query {
	q := &query{args: make([]any, 0, len(args)+2*rows)}
	q.text.Grow(len(text) + 48*rows)
	return q.add(text, args...)
}

func (q *query) add(text string, args ...any) *query {
	q.text.WriteString(text)
	q.args = append(q.args, args...)
	return q
}

// unionAll separates the rows of a list to be joined.
const unionAll = " UNION ALL "

// item adds the i-th entry of a list.
func (q *query) item(i int, separator, text string, args ...any) {
	if i > 0 {
		q.text.WriteString(separator)
	}
	q.add(text, args...)
}

// in adds a list of values in parentheses.
func (q *query) in(values ...any) *query {
	q.text.WriteByte('(')
	for i, v := range values {
		q.item(i, ", ", "?", v)
	}
	q.text.WriteByte(')')
	return q
}

func (q *query) exec(ctx context.Context, db querier) error {
	_, err := db.ExecContext(ctx, q.text.String(), q.args...)
	return err
}

// each scans every row into dest and calls fn after it. Rows keep nothing of
// dest: fn copies what it needs.
func (q *query) each(ctx context.Context, db querier, dest []any, fn func()) error {
	rows, err := db.QueryContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err = rows.Scan(dest...); err != nil {
			break
		}
		fn()
	}
	return errors.Join(err, rows.Err(), rows.Close())
}

// anys makes arguments of strings.
func anys[S ~string](list []S) []any {
	args := make([]any, len(list))
	for i, s := range list {
		args[i] = string(s)
	}
	return args
}
