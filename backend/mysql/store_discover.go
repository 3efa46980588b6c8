package mysql

import (
	"context"
	"slices"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Discover implements [engine.Store].
func (s *store) Discover(ctx context.Context, list []tenants.ID, after string, limit int) ([]engine.Stored, error) {
	var found []engine.Stored
	for chunk := range slices.Chunk(list, listTenants) {
		if len(found) >= limit {
			break
		}
		begin := len(found)
		var p engine.Stored
		err := s.each(ctx, s.discover(chunk, after, limit-begin), []any{&p.Tenant, &p.Key, &p.Head, &p.Tail},
			func() { found = found[:begin] },
			func() { found = append(found, p) })
		if err != nil {
			return nil, s.wrap(chunk[0], "discover partitions", err)
		}
	}
	return found, nil
}

func (s *store) discover(list []tenants.ID, after string, limit int) *query {
	q := newQuery(len(list), stmtDiscover, s.topic).in(anys(list)...)
	if len(list) > 1 {
		return q.add(discoverGroup).add(discoverLimit, limit)
	}
	if after != "" { // a key may be below '': "\x01" is, as if padded with spaces
		q.add(discoverBehind, after)
	}
	return q.add(discoverGroup+discoverPage).add(discoverLimit, limit)
}

// heads reads the first stored offset of partitions. Empty ones are missing.
func (s *store) heads(ctx context.Context, db querier, tenant tenants.ID, keys []string) (map[string]uint64, error) {
	heads := make(map[string]uint64, len(keys))
	for chunk := range slices.Chunk(keys, listKeys) {
		var key string
		var head uint64
		q := newQuery(len(chunk), stmtHeads, string(tenant), s.topic).in(anys(chunk)...).add(discoverGroup)
		if err := q.each(ctx, db, []any{&key, &head}, func() { heads[key] = head }); err != nil {
			return nil, s.wrap(tenant, "read the first offsets", err)
		}
	}
	return heads, nil
}
