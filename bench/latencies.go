package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies collects times in microseconds, up to a minute. It is safe for
// concurrent use.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, time.Minute.Microseconds(), 3)}
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(min(max(d.Microseconds(), 1), time.Minute.Microseconds())) // within its range
}

// merge takes over what other has.
func (l *latencies) merge(other *latencies) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Merge(other.h)
}

// ms is a percentile in milliseconds, or nil if there is nothing.
func (l *latencies) ms(percentile float64) *float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.h.TotalCount() == 0 {
		return nil
	}
	return new(float64(l.h.ValueAtQuantile(percentile)) / 1000)
}
