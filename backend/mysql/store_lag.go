package mysql

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Bounds of reading the lag of a tenant.
const (
	lagPage = 2_000
	// lagPages of partitions are looked at: with a message to be counted in each,
	// as many as are counted.
	lagPages = backend.MaxLag / lagPage
	// lagOldest is the number of statements that look for the oldest message
	// beyond those counted.
	lagOldest = 10
)

// Now implements [engine.Store].
func (s *store) Now(ctx context.Context) (time.Time, error) {
	var ms int64
	err := s.each(ctx, newQuery(0, stmtNow), []any{&ms}, func() {}, func() {})
	return time.UnixMilli(ms), err
}

// Lag implements [engine.Store].
func (s *store) Lag(ctx context.Context, list []tenants.ID) (map[tenants.ID]backend.Lag, error) {
	var partitions map[tenants.ID][]engine.Stored
	if len(list) > 1 { // most tenants have few partitions: one statement may show all
		found, err := s.Discover(ctx, list, "", maxRead)
		if err != nil {
			return nil, err
		}
		if len(found) < maxRead {
			partitions = make(map[tenants.ID][]engine.Stored, len(list))
			for _, p := range found {
				partitions[p.Tenant] = append(partitions[p.Tenant], p)
			}
		}
	}
	lags := make(map[tenants.ID]backend.Lag, len(list))
	for _, tenant := range list {
		l := lagOf{store: s, tenant: tenant}
		var err error
		if partitions != nil {
			err = l.add(ctx, partitions[tenant])
		} else {
			err = l.addPages(ctx)
		}
		if err == nil {
			err = l.findOldest(ctx)
		}
		if err != nil {
			return nil, s.wrap(tenant, "read the lag", err)
		}
		lags[tenant] = l.Lag
	}
	return lags, nil
}

// lagOf is the lag of one tenant on its way.
type lagOf struct {
	*store
	backend.Lag
	tenant  tenants.ID
	skipped []pending // not counted, or not completely
}

// pending is a partition with messages above the group's watermark.
type pending struct {
	key   string
	after uint64 // nothing is pending up to here
	tail  uint64
}

func (l *lagOf) addPages(ctx context.Context) error {
	after := ""
	for range lagPages {
		found, err := l.Discover(ctx, []tenants.ID{l.tenant}, after, lagPage)
		if err != nil {
			return err
		}
		if err := l.add(ctx, found); err != nil || len(found) < lagPage {
			return err
		}
		after = found[len(found)-1].Key
	}
	l.AtLeast = true
	return nil
}

// add counts what the group has to do in some partitions: ranges above its
// watermarks, as long as the count is within its bound.
func (l *lagOf) add(ctx context.Context, found []engine.Stored) error {
	for chunk := range slices.Chunk(found, listKeys) {
		open, err := l.pending(ctx, chunk)
		if err != nil {
			return err
		}
		for parts := range slices.Chunk(open, listTerms) {
			if l.AtLeast {
				l.skipped = append(l.skipped, parts...)
				continue
			}
			if err := l.count(ctx, parts); err != nil {
				return err
			}
		}
	}
	return nil
}

// pending are the partitions whose last message the group has not passed.
func (l *lagOf) pending(ctx context.Context, found []engine.Stored) ([]pending, error) {
	if len(found) == 0 {
		return nil, nil
	}
	keys := make([]string, len(found))
	for i, p := range found {
		keys[i] = p.Key
	}
	var m marks
	err := l.q.retry(ctx, func() (err error) {
		m, err = l.readMarks(ctx, l.q.db, l.tenant, keys)
		return err
	})
	var open []pending
	for _, p := range found {
		if at, _ := m.of(p.Key, l.group); p.Tail > at {
			open = append(open, pending{p.Key, max(at, p.Head-1), p.Tail})
		}
	}
	return open, err
}

func (l *lagOf) count(ctx context.Context, parts []pending) error {
	q := newQuery(3*len(parts), stmtLag, l.group, string(l.tenant), l.topic, l.group)
	for i, p := range parts {
		q.item(i, " OR ", lagRange, p.key, p.after, p.tail)
	}
	var n int
	var age int64
	left := backend.MaxLag - l.Messages
	err := l.each(ctx, q.add(lagLimit, left+1), []any{&n, &age}, func() {}, func() {})
	if n > left { // some of the partitions were not read to their end
		n, l.AtLeast, l.skipped = left, true, append(l.skipped, parts...)
	}
	l.Messages += n
	l.Oldest = max(l.Oldest, fromMillis(age))
	return err
}

// findOldest looks at the first pending messages of partitions that were not
// counted. Offsets are allocated in order of time, so those come first where it
// may have the lowest, until no other can be below the lowest found.
func (l *lagOf) findOldest(ctx context.Context) error {
	slices.SortFunc(l.skipped, func(a, b pending) int { return cmp.Compare(a.after, b.after) })
	lowest := uint64(engine.Unbounded)
	statements := 0
	for chunk := range slices.Chunk(l.skipped, fetchDeepTerms) {
		if statements == lagOldest || chunk[0].after >= lowest {
			return nil
		}
		statements++
		q := newQuery(6*len(chunk), "")
		for i, p := range chunk {
			q.item(i, " UNION ALL ", stmtOldest, l.group, string(l.tenant), l.topic, p.key, p.after, p.tail, l.group)
		}
		var offset uint64
		var age int64
		err := l.each(ctx, q, []any{&offset, &age}, func() {}, func() {
			lowest = min(lowest, offset)
			l.Oldest = max(l.Oldest, fromMillis(age))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
