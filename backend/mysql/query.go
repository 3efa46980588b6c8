package mysql

import (
	"context"
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
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		fn()
	}
	return rows.Err()
}

// anys makes arguments of strings.
func anys[S ~string](list []S) []any {
	args := make([]any, len(list))
	for i, s := range list {
		args[i] = string(s)
	}
	return args
}

// rowList names rows of a table by their primary key, in statements that lock,
// change or delete them.
type rowList struct {
	table   string
	fixed   string   // the columns that are the same for all rows
	columns []string // those that differ: the partition key, and a number
}

// rowKey is an entry of a rowList. A list of one column has no number.
type rowKey struct {
	key    string
	number uint64
}

// query begins a statement. verb is DELETE or a SELECT with its columns. More
// conditions may follow. See the head of
// statements.go for what joined is about.
func (l rowList) query(joined bool, verb string, rows []rowKey, fixed ...any) *query {
	q := newQuery(len(rows), verb)
	if verb == "DELETE" && joined {
		q.add(" " + l.table)
	}
	q.add(" FROM ")
	if joined {
		q.add("(")
		l.items(q, rows, " UNION ALL ", "SELECT ? AS k", "SELECT ? AS k, ? AS n")
		q.add(") AS v STRAIGHT_JOIN " + l.table + " FORCE INDEX (PRIMARY)")
	} else {
		q.add(l.table)
	}
	q.add(" WHERE "+l.fixed, fixed...)
	if joined {
		q.add(" AND " + l.columns[0] + " = k")
		if len(l.columns) > 1 {
			q.add(" AND " + l.columns[1] + " = n")
		}
		return q
	}
	q.add(" AND (")
	l.items(q, rows, " OR ", l.columns[0]+" = ?", "("+strings.Join(l.columns, " = ? AND ")+" = ?)")
	return q.add(")")
}

func (l rowList) items(q *query, rows []rowKey, separator, one, two string) {
	for i, r := range rows {
		if len(l.columns) == 1 {
			q.item(i, separator, one, r.key)
		} else {
			q.item(i, separator, two, r.key, r.number)
		}
	}
}
