package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
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

// watermarks are those of all groups in some partitions of a tenant, and the
// positions of groups that have none there, as far as a publish may meet them.
type watermarks struct {
	parts []partition // sorted, at most fenceKeys
	above uint64      // lower ones are of no interest
	found []watermark
}

type watermark struct {
	partition // without a key: of the topic
	acked     uint64
}

func (w *watermarks) add(p partition, acked uint64) { w.found = append(w.found, watermark{p, acked}) }

// terms ends a statement with the conditions for the partitions.
func (w *watermarks) terms(q *query) {
	for i, p := range w.parts {
		if i > 0 && p.topic == w.parts[i-1].topic {
			q.add(", ?", p.key)
			continue
		}
		q.item(i, ")) OR ", fenceTerm, p.topic, p.key)
	}
	q.add(")))")
}

// hit compares with the first offsets allocated in each partition. It returns a
// [fencedError], of the highest watermark, if one is not below.
func (w *watermarks) hit(first map[partition]uint64) error {
	lowest := make(map[string]uint64) // by topic
	for p, at := range first {
		if of, ok := lowest[p.topic]; !ok || at < of {
			lowest[p.topic] = at
		}
	}
	var hit *fencedError
	for _, m := range w.found {
		allocated, ok := first[m.partition]
		if m.key == "" {
			allocated, ok = lowest[m.topic]
		}
		if ok && m.acked >= allocated && (hit == nil || m.acked > hit.above) {
			hit = &fencedError{at: m.partition, above: m.acked}
		}
	}
	if hit != nil {
		return hit
	}
	return nil
}

func comparePartitions(a, b partition) int {
	return cmp.Or(strings.Compare(a.topic, b.topic), strings.Compare(a.key, b.key))
}

// readFence reads the watermarks of the partitions in which offsets were
// allocated, given the first ones, and returns a [fencedError] if one is not
// below.
func readFence(ctx context.Context, db querier, tenant tenants.ID, first map[partition]uint64) error {
	lowest := uint64(math.MaxUint64)
	for _, at := range first {
		lowest = min(lowest, at)
	}
	var all watermarks
	for chunk := range slices.Chunk(slices.SortedFunc(maps.Keys(first), comparePartitions), fenceKeys) {
		marks := watermarks{parts: chunk, above: lowest}
		read := newQuery(len(chunk), stmtFence, string(tenant), marks.above)
		marks.terms(read)
		var p partition
		var acked uint64
		if err := read.each(ctx, db, []any{&p.topic, &p.key, &acked}, func() { all.add(p, acked) }); err != nil {
			return fmt.Errorf("read the watermarks of %d partitions: %w", len(chunk), err)
		}
	}
	return all.hit(first)
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
