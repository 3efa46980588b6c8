package mysql

import (
	"fmt"
	"slices"
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

// Messages that came in late show, each in its partition, and in no other that is
// read with it: neither the number of those that are late in one, nor a publisher
// inside another, hides what a partition has.
func TestLateMessagesHoldTheirPartitionsOnly(t *testing.T) {
	for name, late := range map[string][][]int{ // by partition, of six messages
		"none":                     {{}, {}, {}},
		"in the last":              {{}, {}, {1}},
		"in the first":             {{0}, {}, {}},
		"many, and one in another": {{0, 2, 3}, {1}, {}},
		"in each":                  {{1, 2}, {0, 3}, {2}},
		"almost all":               {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {4}},
	} {
		for _, listed := range []bool{false, true} {
			for _, inside := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, listed=%v, publisher inside the last=%v", name, listed, inside), func(t *testing.T) {
					settleWithLate(newFixture(t), late, listed, inside)
				})
			}
		}
	}
}

func settleWithLate(f *fixture, late [][]int, listed, inside bool) {
	s := f.store(groupA, "one")
	tx := f.begin()
	keys := partitionKeys(len(late))
	settlements := make([]engine.Settlement, len(keys))
	want := make([]engine.Settled, len(keys))
	var hidden uint64
	for i, key := range keys {
		all := f.publish(key, 5)
		if inside && i == len(keys)-1 {
			hidden = f.insert(tx, key)
		}
		all = append(all, f.publish(key, 1)...)
		f.publish(key, 1) // more to come: no partition drains
		for n, offset := range all {
			if slices.Contains(late[i], n) {
				want[i].Late = append(want[i].Late, offset)
			} else {
				settlements[i].Run = append(settlements[i].Run, offset)
				if len(want[i].Late) == 0 {
					want[i].Watermark, want[i].Stored = offset, true
				}
			}
		}
	}
	f.lease(s, settlements, keys)
	f.q.vitess.Store(listed)
	for i, r := range f.settle(s, settlements...) {
		if inside && i == len(keys)-1 {
			// NOWAIT meets the publisher, unless what is late fills the limit before.
			if r.Watermark >= hidden {
				f.Errorf("partition %s passed a publisher: %+v, who is at %d", keys[i], r, hidden)
			}
			continue
		}
		// As many as the run has are read: the rest of what is late shows when the
		// first of it is settled.
		w := want[i]
		if n := min(len(w.Late), len(r.Late)); n > 0 || len(w.Late) == 0 {
			w.Late = w.Late[:n:n]
		}
		f.want("partition "+keys[i], w, r)
	}
	commit(f, tx)
}
