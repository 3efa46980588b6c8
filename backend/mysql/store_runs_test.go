package mysql

import (
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// Several partitions whose watermarks are to move are read by one statement. A
// publisher inside the run of one of them holds up that one alone, and until the
// settlement commits none gets into the others.
func TestOnePublisherInsideStallsOnePartition(t *testing.T) {
	for _, listed := range []bool{false, true} { // as on Vitess
		t.Run(fmt.Sprintf("listed=%v", listed), func(t *testing.T) {
			f := newFixture(t)
			s := f.store(groupA, "one")
			tx := f.begin()
			keys := partitionKeys(3)
			settlements := make([]engine.Settlement, len(keys))
			var hidden uint64
			for i, key := range keys {
				if i == 1 {
					hidden = f.insert(tx, key)
				}
				run := f.publish(key, 3)
				f.publish(key, 1) // more to come: no partition drains
				settlements[i].Run = run
			}
			f.lease(s, settlements, keys)
			f.q.vitess.Store(listed)
			for i, r := range f.settle(s, settlements...) {
				run := settlements[i].Run
				if i == 1 {
					f.want("stalled", true, r.Stalled && r.Watermark < hidden)
					continue
				}
				f.want("stalled", false, r.Stalled)
				f.want("watermark", run[len(run)-1], r.Watermark)
			}
			commit(f, tx)
			f.want("read below the runs that passed", []uint64{hidden}, f.offsets(s, keys[1], hidden-1)[:1])
		})
	}
}

// A message that came in late shows in the partition it is in, and in no other
// that is read with it.
func TestALateMessageHoldsItsPartitionOnly(t *testing.T) {
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprintf("listed=%v", listed), func(t *testing.T) {
			f := newFixture(t)
			s := f.store(groupA, "one")
			keys := partitionKeys(3)
			settlements := make([]engine.Settlement, len(keys))
			var late uint64
			for i, key := range keys {
				run := f.publish(key, 4)
				if i == 2 {
					late = run[1]
					run = append(run[:1:1], run[2:]...)
				}
				settlements[i].Run = run
				f.publish(key, 1)
			}
			f.lease(s, settlements, keys)
			f.q.vitess.Store(listed)
			for i, r := range f.settle(s, settlements...) {
				run := settlements[i].Run
				want := engine.Settled{Watermark: run[len(run)-1], Stored: true}
				if i == 2 {
					want = engine.Settled{Watermark: run[0], Stored: true, Late: []uint64{late}}
				}
				f.want("settled", want, r)
			}
		})
	}
}
