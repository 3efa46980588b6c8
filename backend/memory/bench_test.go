package memory

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// sizes are numbers of stored messages, of ten in each partition: what the
// operations below cost must not follow them.
var sizes = []int{10_000, 1_000_000}

func forSizes(b *testing.B, run func(*testing.B, *member)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			m := newBench(b).join("landers")
			batch := make([]backend.Message, 0, 1000)
			for i := range n {
				msg := change(fmt.Sprintf("key%06d", i/10), fmt.Sprint(i))
				msg.Payload = make([]byte, 200)
				if batch = append(batch, msg); len(batch) == cap(batch) {
					if _, err := m.b.Publish(b.Context(), batch...); err != nil {
						b.Fatal(err)
					}
					batch = batch[:0]
				}
			}
			b.ReportAllocs()
			run(b, m)
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	forSizes(b, func(b *testing.B, m *member) {
		msg := change("key", "")
		for i := 0; b.Loop(); i++ {
			msg.PartitionKey, msg.ID = fmt.Sprintf("key%06d", i%100_000), fmt.Sprint("new", i)
			if _, err := m.b.Publish(b.Context(), msg); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDiscoverPage(b *testing.B) {
	forSizes(b, func(b *testing.B, m *member) {
		list := []tenants.ID{tenant}
		for b.Loop() {
			page, err := m.Discover(b.Context(), list, "key000500", 100)
			if err != nil || len(page) != 100 {
				b.Fatal(len(page), err)
			}
		}
	})
}

// BenchmarkConsume takes a partition, and reads and settles its ten messages.
func BenchmarkConsume(b *testing.B) {
	forSizes(b, func(b *testing.B, m *member) {
		for i := 0; b.Loop(); i++ {
			key := fmt.Sprintf("next%d", i)
			m.b.publish(key, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
			lease := m.take(key, 0).Lease
			f := m.fetch(engine.Range{Key: key, Through: engine.Unbounded, Limit: 100})[0]
			run := make([]uint64, len(f.Messages))
			for i := range f.Messages {
				run[i] = f.Messages[i].Offset
			}
			if r := m.settle(engine.Settlement{Lease: lease, Run: run, Drained: true}); !r.Drained {
				b.Fatal(r)
			}
		}
	})
}

// BenchmarkFootprint reports the bytes of heap that a partition takes.
func BenchmarkFootprint(b *testing.B) {
	for _, leased := range []bool{false, true} {
		b.Run(fmt.Sprintf("leased=%v", leased), func(b *testing.B) {
			const partitions = 100_000
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				m := newBench(b).join("landers")
				for i := range partitions {
					key := fmt.Sprintf("key%06d", i)
					m.b.publish(key, "id")
					if leased {
						m.take(key, 1)
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/partitions, "B/partition")
				runtime.KeepAlive(m)
			}
		})
	}
}
