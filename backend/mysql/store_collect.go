package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Collect implements [engine.Store]. It needs no lease: what all groups have
// passed is of no use to anybody.
func (s *store) Collect(ctx context.Context, tenant tenants.ID, passed []engine.Passed) (stale []string, err error) {
	passed = slices.SortedFunc(slices.Values(passed), func(a, b engine.Passed) int { return strings.Compare(a.Key, b.Key) })
	for chunk := range slices.Chunk(passed, listKeys) {
		var differ []string
		err := s.q.inTx(ctx, func(tx *sql.Tx) (err error) {
			differ, err = s.collect(ctx, tx, tenant, chunk)
			return err
		})
		if err != nil {
			return nil, s.wrap(tenant, fmt.Sprintf("clean up %d partitions", len(chunk)), err)
		}
		stale = append(stale, differ...)
	}
	return stale, nil
}

func (s *store) collect(ctx context.Context, tx *sql.Tx, tenant tenants.ID, passed []engine.Passed) (stale []string, err error) {
	keys := make([]string, len(passed))
	for i, p := range passed {
		keys[i] = p.Key
	}
	m, err := s.readMarks(ctx, tx, tenant, keys)
	if err != nil {
		return nil, err
	}
	keys = keys[:0]
	messages, states := make(map[string]uint64), make(map[string]uint64)
	for _, p := range passed {
		at, stored := m.of(p.Key, s.group)
		if at != p.Watermark || stored != p.Stored {
			stale = append(stale, p.Key)
			continue
		}
		keys = append(keys, p.Key)
		states[p.Key] = at
		if upTo := m.passed(p.Key, s.group, at); upTo > 0 {
			messages[p.Key] = upTo
		}
	}
	gone, err := s.passedMessages(ctx, tx, tenant, messages)
	if err != nil {
		return nil, err
	}
	var removals []removal
	for _, key := range keys {
		if len(gone[key]) > 0 {
			removals = append(removals, removal{key: key, offsets: gone[key]})
		}
	}
	if err := s.drop(ctx, tx, tenant, removals); err != nil {
		return nil, err
	}
	heads, err := s.heads(ctx, tx, tenant, keys)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { _, waiting := heads[key]; return waiting })
	idle, err := s.idleMarks(ctx, tx, tenant, m, keys, heads, "")
	if err != nil {
		return nil, err
	}
	if err := s.dropMarks(ctx, tx, tenant, idle); err != nil {
		return nil, err
	}
	return stale, s.dropStates(ctx, tx, tenant, states)
}
