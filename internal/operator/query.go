package operator

import (
	"context"
	"database/sql"
	"strings"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// query is a statement under construction, with its arguments.
type query struct {
	text strings.Builder
	args []any
}

func newQuery(text string, args ...any) *query {
	return new(query).add(text, args...)
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
func (q *query) in(values []string) *query {
	q.text.WriteByte('(')
	for i, v := range values {
		q.item(i, ", ", "?", v)
	}
	return q.add(")")
}

// exec returns the number of rows found.
func (q *query) exec(ctx context.Context, db querier) (int, error) {
	result, err := db.ExecContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// read returns all rows of q, each scanned into what dest names of it.
func read[T any](ctx context.Context, db querier, q *query, dest func(*T) []any) ([]T, error) {
	rows, err := db.QueryContext(ctx, q.text.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		var row T
		if err := rows.Scan(dest(&row)...); err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// single is the row of rows that hold one column.
func single[T any](v *T) []any { return []any{v} }

// readOne returns the only row of q, or the zero value.
func readOne[T any](ctx context.Context, db querier, q *query, dest func(*T) []any) (row T, found bool, err error) {
	list, err := read(ctx, db, q, dest)
	if err != nil || len(list) == 0 {
		return row, false, err
	}
	return list[0], true, nil
}

// rowList names rows by their primary key, to be deleted: each is looked up by
// itself in a join with the derived list, which locks the record and nothing
// else. Vitess plans no such joins and gets an OR-list, with its length for LIMIT:
// one below what the statistics take the table to hold keeps MariaDB from scanning
// it, and from waiting for everybody on its way.
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

func (k *rowKey) dest() []any { return []any{&k.key, &k.number} }

// remove begins a DELETE of rows; fixed are the values of the fixed columns.
func (l rowList) remove(joined bool, rows []rowKey, fixed ...any) *query {
	if !joined {
		q := newQuery("DELETE FROM "+l.table+" WHERE "+l.fixed+" AND (", fixed...)
		l.items(q, rows, " OR ", "("+strings.Join(l.columns, " = ? AND ")+" = ?)")
		return q.add(") LIMIT ?", len(rows))
	}
	entry, on := "SELECT ? AS k", " AND "+l.columns[0]+" = k"
	if len(l.columns) > 1 {
		entry, on = entry+", ? AS n", on+" AND "+l.columns[1]+" = n"
	}
	q := newQuery("DELETE " + l.table + " FROM (")
	l.items(q, rows, " UNION ALL ", entry)
	return q.add(") AS v STRAIGHT_JOIN "+l.table+" FORCE INDEX (PRIMARY) WHERE "+l.fixed, fixed...).add(on)
}

func (l rowList) items(q *query, rows []rowKey, separator, entry string) {
	for i, r := range rows {
		if len(l.columns) == 1 {
			q.item(i, separator, entry, r.key)
		} else {
			q.item(i, separator, entry, r.key, r.number)
		}
	}
}
