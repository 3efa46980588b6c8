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

// crowdedError tells that several partitions must be read one by one: a publisher
// is inside the run of one of them, or the answer may be cut off.
type crowdedError struct{ partitions int }

func (e *crowdedError) Error() string {
	return fmt.Sprintf("the runs of %d partition keys cannot be read together", e.partitions)
}

// runTerms bounds the partitions of one locking read.
const runTerms = 50

// readRuns finds out how far the watermarks of partitions may move: it reads the
// offsets stored above each, as many as its run has, and keeps others out of the
// range until commit.
func (t *settling) readRuns(ctx context.Context, parts []*part) error {
	for len(parts) > 0 {
		n, rows := 1, len(parts[0].run)
		for n < len(parts) && n < runTerms && rows+len(parts[n].run) <= maxRead && t.together(parts[0], parts[n]) {
			rows += len(parts[n].run)
			n++
		}
		if err := t.readRunsOf(ctx, parts[:n], rows); err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

// together tells whether the runs of two partitions may be read by one
// statement. An OR-list locks what comes behind a run. That is a message of the
// same partition, which nobody writes any more, unless the partition drains.
func (t *settling) together(a, b *part) bool {
	return !t.oneByOne && (t.q.joins() || !a.Drained && !b.Drained)
}

func (t *settling) readRunsOf(ctx context.Context, parts []*part, rows int) error {
	found := make(map[string][]uint64, len(parts))
	var key string
	var offset uint64
	n := 0
	err := t.runsQuery(parts, rows).each(ctx, t.tx, []any{&key, &offset}, func() {
		found[key] = append(found[key], offset)
		n++
	})
	switch {
	case isNowait(err) && len(parts) > 1:
		return &crowdedError{len(parts)}
	case isNowait(err):
		// Another group's watermark may be the one inside; it is gone soon.
		key := parts[0].Key
		if t.conflicts[key]++; t.marks.single() || t.conflicts[key] > maxConflicts {
			return &stalledError{key}
		}
	}
	if err != nil {
		return fmt.Errorf("read the runs of %d partitions from key %q: %w", len(parts), parts[0].Key, err)
	}
	for _, p := range parts {
		p.mark, p.ahead, p.gone, p.late = advance(p.before, p.run, found[p.Key])
		if len(p.late) > 0 && len(parts) > 1 && !t.q.joins() && n == rows {
			// The partitions of an OR-list share its limit: the late ones of this
			// one may have used up what others would have shown.
			return &crowdedError{len(parts)}
		}
		p.leaving = p.leaving && len(p.late) == 0
	}
	return nil
}

func (t *settling) runsQuery(parts []*part, rows int) *query {
	q := newQuery(3*len(parts), "")
	term := func(p *part) { q.add(runTerm, p.Key, p.before, p.run[len(p.run)-1]) }
	end := func(order string, rows int) {
		q.add(order)
		if !t.hooks.unlimitedRun {
			q.add(runLimit, rows)
		}
		if !t.hooks.plainRun {
			q.add(lockNowait)
		}
	}
	switch {
	case len(parts) == 1:
		q.add(stmtRun, string(t.tenant), t.topic)
		term(parts[0])
		end(runOrder, rows)
	case t.q.joins():
		for i, p := range parts {
			q.item(i, " UNION ALL ", "("+stmtRun, string(t.tenant), t.topic)
			term(p)
			end(runOrder, len(p.run))
			q.add(")")
		}
	default:
		q.add(stmtRun+"(", string(t.tenant), t.topic)
		for i, p := range parts {
			q.item(i, " OR ", "(")
			term(p)
			q.add(")")
		}
		q.add(")")
		end(runsOrder, rows)
	}
	return q
}

// marks are the positions of all groups in some partitions.
type marks struct {
	base   map[string]uint64            // where registered groups begin, by group
	stored map[string]map[string]uint64 // watermarks by partition key and group
}

// readMarks is never answered from memory: a group that has just joined counts.
func (s *store) readMarks(ctx context.Context, db querier, tenant tenants.ID, keys []string) (marks, error) {
	m := marks{base: make(map[string]uint64), stored: make(map[string]map[string]uint64)}
	for rest := keys; len(rest) > 0; {
		chunk := rest[:min(len(rest), s.marksAtOnce(len(m.base)))]
		rest = rest[len(chunk):]
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
	s.groups.Store(int64(len(m.base)))
	if _, ok := m.base[s.group]; !ok {
		m.base[s.group] = 0 // dropped by an operator; see grants
	}
	return m, nil
}

// marksAtOnce is how many partitions' watermarks are read at once: there is one of
// each group, and Vitess returns 10,000 rows at most. groups is their number, 0 as
// long as nobody knows; it may double before they are too many.
func (s *store) marksAtOnce(groups int) int {
	if !s.q.vitess.Load() {
		return listKeys
	}
	if groups == 0 {
		groups = int(s.groups.Load())
	}
	if groups == 0 {
		return 10
	}
	return min(listKeys, max(1, maxRead/groups-1))
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
