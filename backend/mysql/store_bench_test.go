package mysql

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// BenchmarkSettle reports messages and statements by the server's own count.
func BenchmarkSettle(b *testing.B) {
	b.Run("5 partitions of 1000", func(b *testing.B) {
		f := newFixture(b)
		s := f.store(groupA, "one")
		keys := partitionKeys(5)
		settlements := make([]engine.Settlement, len(keys))
		f.lease(s, settlements, keys)
		f.benchmark(len(keys)*engine.MaxRun, func() {
			for i, key := range keys {
				settlements[i].Run = f.publish(key, engine.MaxRun)
			}
		}, func() {
			for i, r := range f.settle(s, settlements...) {
				settlements[i].Watermark, settlements[i].Stored = r.Watermark, r.Stored
			}
		})
	})
	b.Run("5 partitions of 1000, with fetch", func(b *testing.B) {
		f := newFixture(b)
		s := f.store(groupA, "one")
		keys := partitionKeys(5)
		settlements := make([]engine.Settlement, len(keys))
		f.lease(s, settlements, keys)
		f.benchmark(len(keys)*engine.MaxRun, func() {
			for _, key := range keys {
				f.publish(key, engine.MaxRun)
			}
		}, func() {
			ranges := make([]engine.Range, len(keys))
			for i, key := range keys {
				ranges[i] = engine.Range{Key: key, After: settlements[i].Watermark, Through: engine.Unbounded, Limit: engine.MaxRun}
			}
			for i, p := range f.fetch(s, ranges...) {
				settlements[i].Run = settlements[i].Run[:0]
				for _, m := range p.Messages {
					settlements[i].Run = append(settlements[i].Run, m.Offset)
				}
			}
			for i, r := range f.settle(s, settlements...) {
				settlements[i].Watermark, settlements[i].Stored = r.Watermark, r.Stored
			}
		})
	})
	b.Run("100 drained partitions of 1, with acquire and fetch", func(b *testing.B) {
		f := newFixture(b)
		s := f.store(groupA, "one")
		const partitions = 100
		round := 0
		candidates := make([]engine.Candidate, partitions)
		ranges := make([]engine.Range, partitions)
		f.benchmark(partitions, func() {
			round++
			msgs := make([]backend.Message, partitions)
			for i := range msgs {
				msgs[i] = message(tenantA, topicA, fmt.Sprintf("build-%d-%d", round, i), i)
				msgs[i].Payload = make([]byte, 200)
			}
			for i, r := range mustPublish(f, f.q, msgs...) {
				key := msgs[i].PartitionKey
				candidates[i] = engine.Candidate{Key: key, Claim: r.Offset}
				ranges[i] = engine.Range{Key: key, After: r.Offset - 1, Through: engine.Unbounded, Limit: 2}
			}
		}, func() {
			leases := make(map[string]engine.Lease, partitions)
			for _, g := range f.acquire(s, candidates...).Grants {
				leases[g.Key] = g.Lease
			}
			settlements := make([]engine.Settlement, partitions)
			for i, p := range f.fetch(s, ranges...) {
				settlements[i] = engine.Settlement{Lease: leases[p.Key], Run: []uint64{p.Messages[0].Offset}, Drained: true}
			}
			if slices.ContainsFunc(f.settle(s, settlements...), func(r engine.Settled) bool { return !r.Drained }) {
				b.Fatal("not drained")
			}
		})
	})
}

// benchmark runs work on what prepare has set up, and reports messages a second
// and statements a message of the work alone.
func (f *fixture) benchmark(messages int, prepare, work func()) {
	b := f.TB.(*testing.B)
	f.ctx = b.Context()
	statements := 0
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	n := 0
	for ; n < b.N; n++ {
		prepare()
		before := questions(f)
		b.StartTimer()
		work()
		b.StopTimer()
		statements += questions(f) - before - 1 // its own
	}
	b.ReportMetric(float64(n*messages)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(statements)/float64(n*messages), "statements/msg")
}

// questions is the server's count of statements.
func questions(f *fixture) int {
	f.Helper()
	var name string
	var n int
	if err := f.db.QueryRowContext(f.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		f.Fatal(err)
	}
	return n
}
