package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

// recorder keeps the last reading statement.
type recorder struct {
	querier
	text string
	args []any
}

func (r *recorder) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	r.text, r.args = text, args
	return r.querier.QueryContext(ctx, text, args...)
}

// plan is what EXPLAIN says of the last statement.
func (r *recorder) plan(t testing.TB) (key, kind string, rows int) {
	t.Helper()
	found, err := r.querier.QueryContext(t.Context(), "EXPLAIN "+r.text, r.args...)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values := make([]sql.NullString, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if !found.Next() {
		t.Fatalf("no plan: %v", found.Err())
	}
	if err := found.Scan(dest...); err != nil {
		t.Fatal(err)
	}
	for i, name := range columns {
		switch name {
		case "key":
			key = values[i].String
		case "type":
			kind = values[i].String
		case "rows":
			_, err = fmt.Sscan(values[i].String, &rows)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return key, kind, rows
}

// What a publish reads does not grow with the backlog.
func TestPublishReadsByItsIndexes(t *testing.T) {
	q, db := onDB(t)
	var backlog []backend.Message
	for n := range 6_000 {
		backlog = append(backlog, message("a", "t", fmt.Sprintf("k%d", n%3), n))
	}
	mustPublish(t, q, backlog...)
	marks := newQuery(2_000, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES ")
	for n := range 2_000 {
		marks.item(n, ", ", "('a', 't', ?, 'g', 1, 0)", fmt.Sprintf("p%d", n))
	}
	if err := marks.exec(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "ANALYZE TABLE queue_messages, queue_offsets")

	for name, nth := range map[string]func(n int) backend.Message{
		"one partition":    func(n int) backend.Message { return message("a", "t", "k1", 10*n) },
		"a partition each": func(n int) backend.Message { return message("a", "t", fmt.Sprintf("p%d", n), n) },
	} {
		t.Run(name, func(t *testing.T) {
			var rows []*row
			first := allocated(t, readBackIDs, nth, &rows)
			r := &recorder{querier: db}
			at := uint64(queryInt(t, db, "SELECT MIN(`offset`) FROM queue_messages")) + 1_000
			b := newBatch("a", rows)
			if _, err := b.countNew(t.Context(), r, 1, inserted{rows, at}, nil); err != nil {
				t.Fatal(err)
			}
			if key, kind, n := r.plan(t); key != "idx_offset" || kind != "range" || n > 2*len(rows) {
				t.Errorf("counting %d new rows: key %s, type %s, %d rows", len(rows), key, kind, n)
			}
			if err := b.readNew(t.Context(), r, 1, []inserted{{rows, at}}); err != nil {
				t.Fatal(err)
			}
			if key, kind, n := r.plan(t); key != "idx_offset" || kind != "range" || n > 5*len(rows) {
				t.Errorf("reading %d new rows back: key %s, type %s, %d rows", len(rows), key, kind, n)
			}
			if err := readBack(t.Context(), r, "a", b.rows, "", nil); err != nil {
				t.Fatal(err)
			}
			if key, kind, n := r.plan(t); key != "uq_message" || kind != "range" || n > 2*len(rows) {
				t.Errorf("reading %d rows back: key %s, type %s, %d rows", len(rows), key, kind, n)
			}
			if err := readFence(t.Context(), r, "a", first); err != nil {
				t.Fatal(err)
			}
			if key, kind, n := r.plan(t); key != "PRIMARY" || kind != "range" || n > 2*len(first)+2 {
				t.Errorf("the fence of %d partitions: key %s, type %s, %d rows", len(first), key, kind, n)
			}
		})
	}
}

// allocated makes n rows, and first offsets above any watermark.
func allocated(t testing.TB, n int, nth func(int) backend.Message, rows *[]*row) map[partition]uint64 {
	first := make(map[partition]uint64)
	for i := range n {
		r := mustRow(t, nth(i))
		*rows = append(*rows, r)
		first[r.partition] = 1 << 40
	}
	return first
}
