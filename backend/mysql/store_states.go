package mysql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// stateBytes bounds the error texts of one statement, before escaping.
const stateBytes = 1 << 20

// writeStates writes the states given and, as settled ones, what the watermarks
// do not reach of the runs.
func (t *settling) writeStates(ctx context.Context) error {
	var q *query
	rows, size := 0, 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		n := rows
		rows, size = 0, 0
		if err := q.add(stmtSetStatesEnd).exec(ctx, t.tx); err != nil {
			return fmt.Errorf("write %d delivery states: %w", n, err)
		}
		return nil
	}
	for _, p := range t.parts {
		for _, st := range p.states() {
			if rows == listKeys || size > stateBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			if rows == 0 {
				q = newQuery(0, stmtSetStates)
			}
			if st.Settled {
				q.item(rows, ", ", ackedRow, string(t.tenant), t.group, t.topic, p.Key, st.Offset)
			} else {
				q.item(rows, ", ", stateRow, string(t.tenant), t.group, t.topic, p.Key, st.Offset,
					false, st.Barrier, st.Attempts, st.Deliveries, millis(max(st.Delay, 0)), errorText(st.Error))
				size += len(st.Error)
			}
			rows++
		}
	}
	return flush()
}

// states are what is to be written, in order of offset.
func (p *part) states() []engine.State {
	if len(p.ahead) == 0 && slices.IsSortedFunc(p.States, byOffset) {
		return p.States
	}
	states := slices.Clone(p.States)
	for _, offset := range p.ahead {
		states = append(states, engine.State{Offset: offset, Settled: true})
	}
	slices.SortFunc(states, byOffset)
	return states
}

func byOffset(a, b engine.State) int { return cmp.Compare(a.Offset, b.Offset) }

// dropStates deletes the group's delivery states up to the offsets given by
// partition key. They are listed first, so that only records are locked.
func (s *store) dropStates(ctx context.Context, db querier, tenant tenants.ID, upTo map[string]uint64) error {
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(upTo)), listTerms) {
		for rows := maxRead; rows == maxRead; {
			q := newQuery(len(chunk), stmtStatesUpTo, string(tenant), s.group, s.topic)
			for i, key := range chunk {
				q.item(i, " OR ", stateUpTo, key, upTo[key])
			}
			var row rowKey
			var found []rowKey
			err := q.add(")"+statesPage, maxRead).each(ctx, db, []any{&row.key, &row.number}, func() { found = append(found, row) })
			if err != nil {
				return fmt.Errorf("list delivery states: %w", err)
			}
			if err := s.dropStateRows(ctx, db, tenant, found); err != nil {
				return err
			}
			rows = len(found)
		}
	}
	return nil
}

// dropStateRows deletes delivery states by partition key and offset.
func (s *store) dropStateRows(ctx context.Context, db querier, tenant tenants.ID, states []rowKey) error {
	for rows := range slices.Chunk(states, listRows) {
		q := stateList.query(s.q.joins(), "DELETE", rows, string(tenant), s.group, s.topic)
		if err := q.exec(ctx, db); err != nil {
			return fmt.Errorf("delete %d delivery states: %w", len(rows), err)
		}
	}
	return nil
}
