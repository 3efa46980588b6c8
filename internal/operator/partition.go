package operator

import (
	"context"
	"database/sql"
	"slices"

	"github.com/tenantmq/tenantmq/tenants"
)

// Bounds of a statement's lists.
const (
	// unions bounds the branches of a UNION ALL.
	unions = 50
	// listKeys bounds lists of values.
	listKeys = 500
	// listTerms bounds OR-lists.
	listTerms = 100
	// listRows bounds lists of rows to be looked up by key.
	listRows = 200
)

// keys lists up to n partitions with messages, behind the key after ("" from the
// start), in the order of the database.
func (o *Operator) keys(ctx context.Context, tenant tenants.ID, topic, after string, n int) ([]string, error) {
	const least, most = 128, 4_096
	var list []string
	for size := least; len(list) < n; {
		q := newQuery(stmtKeys, string(tenant), topic)
		if after != "" {
			q.add(keyBehind, after)
		}
		page, err := read(ctx, o.db, q.add(keyPage, size), single[string])
		if err != nil {
			return nil, err
		}
		entries := len(page)
		page = slices.Compact(page)
		list = append(list, page...)
		if entries < size {
			break
		}
		after = page[len(page)-1]
		if len(page) > size/16 {
			size = min(2*size, most)
		} else {
			size = least
		}
	}
	return list[:min(len(list), n)], nil
}

// ends are the first and the last offset stored in a partition.
type ends struct{ head, tail uint64 }

// ends reads those of partitions with messages; others are missing.
func (o *Operator) ends(ctx context.Context, db querier, tenant tenants.ID, topic string, keys []string) (map[string]ends, error) {
	type row struct {
		i          int
		head, tail sql.Null[uint64]
	}
	found := make(map[string]ends, len(keys))
	for chunk := range slices.Chunk(keys, unions) {
		q := new(query)
		for i, key := range chunk {
			q.item(i, " UNION ALL ", stmtEnds, i, string(tenant), topic, key)
		}
		rows, err := read(ctx, db, q, func(r *row) []any { return []any{&r.i, &r.head, &r.tail} })
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.tail.Valid {
				found[chunk[r.i]] = ends{r.head.V, r.tail.V}
			}
		}
	}
	return found, nil
}

// positions are where a group stands in partitions. Those without a watermark
// have its start.
func (o *Operator) positions(ctx context.Context, tenant tenants.ID, topic string, r registration, keys []string) (map[string]uint64, error) {
	found := make(map[string]uint64, len(keys))
	for _, key := range keys {
		found[key] = r.start
	}
	for chunk := range slices.Chunk(keys, listKeys) {
		rows, err := read(ctx, o.db, newQuery(stmtMarks, string(tenant), topic, r.group).in(chunk), (*rowKey).dest)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.key] = r.number
		}
	}
	return found, nil
}
