package mysql

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tenantmq/tenantmq/tenants"
)

// advance decides how far a watermark moves: behind the settled offsets of run,
// but not past one of found that is not among them, which came in late. found
// are the offsets stored between the watermark and the end of run, ascending,
// at most len(run) of them: as many as it takes to see the first late one. What
// run has and found lacks was deleted, and settled by that.
func advance(watermark uint64, run, found []uint64) (mark uint64, ahead, passed, late []uint64) {
	stop := uint64(math.MaxUint64)
	i := 0
	for _, offset := range found {
		for i < len(run) && run[i] < offset {
			i++
		}
		if i == len(run) || run[i] != offset {
			late = append(late, offset)
			stop = min(stop, offset)
		}
	}
	mark = watermark
	n := 0
	for n < len(run) && run[n] < stop {
		mark = max(mark, run[n])
		n++
	}
	m := 0
	for m < len(found) && found[m] <= mark {
		m++
	}
	return mark, run[n:], found[:m], late
}

// stalledError tells that a publisher is inside the range of a run.
type stalledError struct{ key string }

func (e *stalledError) Error() string {
	return fmt.Sprintf("a publisher is inside the run of partition key %q", e.key)
}

// readRun returns the offsets stored above a watermark, as many as the run has,
// and keeps others out of the range until commit.
func (s *store) readRun(ctx context.Context, db querier, tenant tenants.ID, key string, watermark uint64, run []uint64) ([]uint64, error) {
	q := newQuery(0, stmtRun, string(tenant), s.topic, key, watermark, run[len(run)-1])
	if !s.hooks.unlimitedRun {
		q.add(runLimit, len(run))
	}
	if !s.hooks.plainRun {
		q.add(lockNowait)
	}
	var offset uint64
	found := make([]uint64, 0, len(run))
	err := q.each(ctx, db, []any{&offset}, func() { found = append(found, offset) })
	return found, err
}

// marks are the positions of all groups in some partitions.
type marks struct {
	base   map[string]uint64            // where registered groups begin, by group
	stored map[string]map[string]uint64 // watermarks by partition key and group
}

// readMarks is never answered from memory: a group that has just joined counts.
func (s *store) readMarks(ctx context.Context, db querier, tenant tenants.ID, keys []string) (marks, error) {
	m := marks{base: make(map[string]uint64), stored: make(map[string]map[string]uint64)}
	for chunk := range slices.Chunk(keys, listKeys) {
		var key, group string
		var acked uint64
		q := newQuery(len(chunk), stmtMarks, string(tenant), s.topic).in(append([]any{""}, anys(chunk)...)...)
		err := q.each(ctx, db, []any{&key, &group, &acked}, func() {
			if key == "" {
				m.base[group] = acked
				return
			}
			if m.stored[key] == nil {
				m.stored[key] = make(map[string]uint64, 1)
			}
			m.stored[key][group] = acked
		})
		if err != nil {
			return marks{}, s.wrap(tenant, "read the watermarks", err)
		}
	}
	if _, ok := m.base[s.group]; !ok {
		m.base[s.group] = 0 // dropped by an operator; see grants
	}
	return m, nil
}

// of returns the position of a group in a partition, and whether it has a row
// of its own there.
func (m marks) of(key, group string) (uint64, bool) {
	if acked, ok := m.stored[key][group]; ok {
		return acked, true
	}
	return m.base[group], false
}

// single tells that no other group waits for messages of the topic.
func (m marks) single() bool { return len(m.base) == 1 }

// passed is the offset that every registered group has reached, given what one
// of them is about to.
func (m marks) passed(key, group string, mark uint64) uint64 {
	for other := range m.base {
		if other != group {
			at, _ := m.of(key, other)
			mark = min(mark, at)
		}
	}
	return mark
}

// setMarks writes the group's watermarks.
func (s *store) setMarks(ctx context.Context, db querier, tenant tenants.ID, moved []*part) error {
	for chunk := range slices.Chunk(moved, listKeys) {
		q := newQuery(3*len(chunk), stmtSetMarks)
		for i, p := range chunk {
			q.item(i, ", ", markRow, string(tenant), s.topic, p.Key, s.group, p.mark)
		}
		if err := q.add(stmtSetMarksEnd).exec(ctx, db); err != nil {
			return s.wrap(tenant, fmt.Sprintf("write %d watermarks", len(chunk)), err)
		}
	}
	return nil
}
