package mysql

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

// BenchmarkPublish prints messages a second with 200-byte payloads, for a
// number of goroutines that each publish a number of messages at a time.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct{ publishers, batch int }{{1, 1}, {16, 1}, {64, 1}, {4, 100}, {4, 1_000}} {
		b.Run(fmt.Sprintf("publishers=%d/batch=%d", c.publishers, c.batch), func(b *testing.B) {
			q, _ := onDB(b)
			payload := bytes.Repeat([]byte("x"), 200)
			var next atomic.Int64
			b.ResetTimer()
			var wait sync.WaitGroup
			for range c.publishers {
				wait.Go(func() {
					for {
						n := next.Add(int64(c.batch))
						if n > int64(b.N+c.batch) {
							return
						}
						msgs := make([]backend.Message, c.batch)
						for i := range msgs {
							msgs[i] = message("a", "t", fmt.Sprintf("k%d", (int(n)+i)%50), int(n)+i)
							msgs[i].Payload = payload
						}
						if _, err := q.Publish(b.Context(), msgs...); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
