package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/tenants"
)

// The fence. Offsets are allocated in one order and committed in another. A
// watermark that moves waits for rows that are inserted and not committed (its
// locking read meets them) but cannot see an offset that is allocated and not
// inserted yet:
//
//	publisher A                     publisher B          consumer
//	allocates 10
//	                                inserts 11, commits
//	                                                     handles 11, watermark = 11
//	inserts 10, commits: below the watermark, never delivered
//
// So a publisher looks at the watermarks of the partitions it wrote after its
// insert and before its commit; if one is at or above the first offset it
// allocated there, it rolls back and inserts again, which allocates higher
// ones. A consumer that moves the watermark after this look has met the
// inserted row with its locking read.
//
// The read must be plain (a lock on the watermark makes publishers the victims
// of endless deadlocks), and must not see an older snapshot than the insert: in
// a transaction that read nothing before it doesn't.

// fencedError tells that inserted rows must be taken back.
type fencedError struct {
	// at is one of the partitions.
	at partition
	// above is what the counter of offsets must get past if it lags behind.
	above uint64
	// lagging: the counter allocated an offset that is stored already.
	lagging bool
}

func (e *fencedError) Error() string {
	if e.lagging {
		return fmt.Sprintf("the server allocated offsets of topic %q, partition key %q, that are in use, up to %d", e.at.topic, e.at.key, e.above)
	}
	return fmt.Sprintf("a watermark of topic %q, partition key %q, is at %d already", e.at.topic, e.at.key, e.above)
}

// fenceKeys bounds the partition keys of one fence read.
const fenceKeys = 200

// readFence compares the first offsets newly allocated in some partitions of a
// tenant with the watermarks of all groups, and with the positions of groups
// that have none there. It returns a [fencedError] if one is not below.
func readFence(ctx context.Context, db querier, tenant tenants.ID, first map[partition]uint64) error {
	parts := slices.SortedFunc(maps.Keys(first), func(a, b partition) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.key, b.key))
	})
	var hit *fencedError
	for chunk := range slices.Chunk(parts, fenceKeys) {
		lowest := first[chunk[0]]
		lowestOf := make(map[string]uint64) // by topic
		for _, p := range chunk {
			lowest = min(lowest, first[p])
			if of, ok := lowestOf[p.topic]; !ok || first[p] < of {
				lowestOf[p.topic] = first[p]
			}
		}
		read := newQuery(len(chunk), stmtFence, string(tenant), lowest)
		for i, p := range chunk {
			if i > 0 && p.topic == chunk[i-1].topic {
				read.add(", ?", p.key)
				continue
			}
			read.item(i, ")) OR ", fenceTerm, p.topic, p.key)
		}
		read.add(")))")
		var p partition
		var acked uint64
		err := read.each(ctx, db, []any{&p.topic, &p.key, &acked}, func() {
			allocated, ok := first[p]
			if p.key == "" {
				allocated, ok = lowestOf[p.topic], true
			}
			if ok && acked >= allocated && (hit == nil || acked > hit.above) {
				hit = &fencedError{at: p, above: acked}
			}
		})
		if err != nil {
			return fmt.Errorf("read the watermarks of %d partitions: %w", len(chunk), err)
		}
	}
	if hit != nil {
		return hit
	}
	return nil
}

// lagging reports rows that an insert neither stored nor found stored: the
// offset allocated for them was in use in their partition.
func lagging(ctx context.Context, db querier, tenant tenants.ID, missing []*row) error {
	e := &fencedError{lagging: true}
	seen := make(map[partition]bool)
	for _, r := range missing {
		if seen[r.partition] {
			continue
		}
		seen[r.partition] = true
		var tail uint64
		if err := db.QueryRowContext(ctx, stmtTail, string(tenant), r.topic, r.key).Scan(&tail); err != nil {
			return fmt.Errorf("read the last offset of a partition: %w", err)
		}
		if tail >= e.above {
			e.at, e.above = r.partition, tail
		}
	}
	return e
}

// Bounds of starting over.
const (
	fencesBeforeRaise = 3  // a race is over after one or two
	maxFences         = 30 // each raise gets past everything seen so far
)

// shouldRaise tells whether the counter is behind, after a number of fences in
// a row: the table was restored or resharded.
func (e *fencedError) shouldRaise(fences int) bool {
	return e.lagging || fences%fencesBeforeRaise == 0
}

// insertAbove makes the server allocate offsets above the one given from now
// on. The caller rolls the row back; the counter stays.
func insertAbove(ctx context.Context, db querier, tenant tenants.ID, e *fencedError) error {
	topic, key := e.at.topic, e.at.key
	if key == "" { // a registration; messages have keys
		key = "-"
	}
	_, err := db.ExecContext(ctx, stmtRaise, string(tenant), topic, key, e.above+1, rand.Text())
	if err != nil && !isDuplicate(err) { // it is there already
		return fmt.Errorf("raise the counter of offsets above %d: %w", e.above, err)
	}
	return nil
}

func (q *Queue) logRaise(tenant tenants.ID, e *fencedError) {
	q.metrics.raises.Inc(1)
	q.log.Warn("raised the counter of offsets: it was behind what is stored, as after a restore or a resharding",
		zap.String("tenant", string(tenant)), zap.String("topic", e.at.topic), zap.String("partition_key", e.at.key),
		zap.Uint64("above", e.above))
}
