package mysql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenantmq/tenantmq/tenants"
)

// removal are messages of a partition to be deleted, in order of offset.
type removal struct {
	key     string
	offsets []uint64
	// exact: others may be stored between these, and must stay.
	exact bool
	// last: nobody knows of others in the partition.
	last bool
}

// dropByRange is how many messages of a partition make a statement of their own
// worthwhile.
const dropByRange = 20

// drop deletes messages: many of a partition as a range, the others as lists.
func (s *store) drop(ctx context.Context, db querier, tenant tenants.ID, removals []removal) error {
	var last, others []rowKey
	for _, r := range removals {
		n := len(r.offsets)
		if n <= dropByRange || r.exact {
			rows := &others
			if r.last && !s.q.joins() {
				rows = &last
			}
			for _, offset := range r.offsets {
				*rows = append(*rows, rowKey{r.key, offset})
			}
			continue
		}
		q := newQuery(0, stmtDropRange, string(tenant), s.topic, r.key, r.offsets[0]-1, r.offsets[n-1], n)
		if err := q.exec(ctx, db); err != nil {
			return fmt.Errorf("delete %d messages of partition key %q: %w", n, r.key, err)
		}
	}
	for rows := range slices.Chunk(others, listRows) {
		if err := s.dropListed(ctx, db, tenant, rows); err != nil {
			return err
		}
	}
	for len(last) > 0 {
		// By halves: the limit stays well below what the table holds, since the rest of the list is stored, too.
		n := min((len(last)+1)/2, listRows)
		if err := s.dropListed(ctx, db, tenant, last[:n]); err != nil {
			return err
		}
		last = last[n:]
	}
	return nil
}

func (s *store) dropListed(ctx context.Context, db querier, tenant tenants.ID, rows []rowKey) error {
	q := messageList.query(s.q.joins(), "DELETE", rows, string(tenant), s.topic)
	if !s.q.joins() {
		q.add(limitRows, len(rows)) // see the head of statements.go
	}
	if err := q.exec(ctx, db); err != nil {
		return fmt.Errorf("delete %d messages: %w", len(rows), err)
	}
	return nil
}

// passedMessages lists stored messages up to the offsets given by partition
// key, at most maxRemove in all.
func (s *store) passedMessages(ctx context.Context, db querier, tenant tenants.ID, upTo map[string]uint64) (map[string][]uint64, error) {
	passed := make(map[string][]uint64)
	left := maxRemove
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(upTo)), listTerms) {
		if left == 0 {
			break
		}
		q := newQuery(len(chunk), stmtPassed, string(tenant), s.topic)
		for i, key := range chunk {
			q.item(i, " OR ", passedTerm, key, upTo[key])
		}
		var key string
		var offset uint64
		err := q.add(passedPage, left).each(ctx, db, []any{&key, &offset}, func() {
			passed[key] = append(passed[key], offset)
			left--
		})
		if err != nil {
			return nil, fmt.Errorf("list messages that all groups have passed: %w", err)
		}
	}
	return passed, nil
}

// mark is a watermark row.
type mark struct {
	key, group string
	acked      uint64
}

// dropMarks deletes watermarks, but those that have moved.
func (s *store) dropMarks(ctx context.Context, db querier, tenant tenants.ID, list []mark) error {
	for group, marks := range byGroups(list) {
		for rows := range chunksOf(marks, func(m mark) rowKey { return rowKey{m.key, m.acked} }) {
			q := markList.query(s.q.joins(), "DELETE", rows, string(tenant), s.topic, group)
			if err := q.exec(ctx, db); err != nil {
				return fmt.Errorf("delete %d watermarks: %w", len(rows), err)
			}
		}
	}
	return nil
}

// byGroups iterates over watermarks group by group, in order of keys.
func byGroups(list []mark) func(yield func(string, []mark) bool) {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.key, b.key))
	})
	return func(yield func(string, []mark) bool) {
		for len(sorted) > 0 {
			group := sorted[0].group
			n := slices.IndexFunc(sorted, func(m mark) bool { return m.group != group })
			if n < 0 {
				n = len(sorted)
			}
			if !yield(group, sorted[:n]) {
				return
			}
			sorted = sorted[n:]
		}
	}
}

// idleMarks returns the watermarks in some partitions that hold nothing back,
// given the first stored offset of each: no message at or below them is stored,
// and no subscriber of their group (but the one left out) has a lease to base
// decisions on them. The leases stay away until commit.
func (s *store) idleMarks(
	ctx context.Context, db querier, tenant tenants.ID, m marks, keys []string, heads map[string]uint64, except string,
) ([]mark, error) {
	var idle []mark
	for _, key := range keys {
		head, waiting := heads[key]
		for group, acked := range m.stored[key] {
			if group != except && (!waiting || head > acked) {
				idle = append(idle, mark{key, group, acked})
			}
		}
	}
	// The plain read spares those that are leased a lock and us the wait.
	for _, lock := range []string{"", lockInShare} {
		leased, err := s.leased(ctx, db, tenant, idle, lock)
		if err != nil {
			return nil, err
		}
		idle = slices.DeleteFunc(idle, func(m mark) bool { return leased[mark{key: m.key, group: m.group}] })
	}
	return idle, nil
}

func (s *store) leased(ctx context.Context, db querier, tenant tenants.ID, list []mark, lock string) (map[mark]bool, error) {
	leased := make(map[mark]bool)
	for group, marks := range byGroups(list) {
		for rows := range chunksOf(marks, func(m mark) rowKey { return rowKey{key: m.key} }) {
			var key string
			q := leaseKeyList.query(s.q.joins(), "SELECT partition_key", rows, string(tenant), group, s.topic).add(lock)
			if err := q.each(ctx, db, []any{&key}, func() { leased[mark{key: key, group: group}] = true }); err != nil {
				return nil, fmt.Errorf("read the leases of group %q: %w", group, err)
			}
		}
	}
	return leased, nil
}
