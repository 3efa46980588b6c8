package engine

import (
	"sync"

	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/tenants"
)

// Published counts what a queue's callers publish. It is safe for concurrent
// use.
type Published struct {
	scope  tally.Scope
	labels labels
	batch  tally.Histogram

	mu      sync.RWMutex
	streams map[stream]*publishedCounters
}

// stream is a topic with the label of a tenant.
type stream struct{ topic, label string }

type publishedCounters struct{ published, duplicates tally.Counter }

// maxStreams bounds the series: names of topics that an application makes up as
// it goes are counted under otherTopics from there on.
const (
	maxStreams  = 10_000
	otherTopics = "other"
)

// NewPublished names the first tagged tenants of a set in the metrics; 0 leaves
// the tag out.
func NewPublished(scope tally.Scope, set tenants.Set, tagged int) *Published {
	return &Published{
		scope: scope, labels: newLabels(set, tagged), batch: scope.Histogram("publish_batch_size", batchBuckets),
		streams: make(map[stream]*publishedCounters),
	}
}

// Receipt is what Count asks for.
type Receipt struct {
	Tenant    tenants.ID
	Topic     string
	Duplicate bool
}

// Count counts n messages that were stored, or found stored.
func (p *Published) Count(n int, receipt func(i int) Receipt) {
	var stored, duplicates int64
	for i := 0; i < n; {
		first := receipt(i)
		for stored, duplicates = 0, 0; i < n; i++ {
			r := receipt(i)
			if r.Tenant != first.Tenant || r.Topic != first.Topic {
				break
			}
			if r.Duplicate {
				duplicates++
			} else {
				stored++
			}
		}
		c := p.of(stream{first.Topic, p.labels.of(first.Tenant)}) // once a run, not a message
		c.published.Inc(stored)
		c.duplicates.Inc(duplicates)
	}
}

// Batch tells how many messages were stored together.
func (p *Published) Batch(n int) { p.batch.RecordValue(float64(n)) }

func (p *Published) of(at stream) *publishedCounters {
	p.mu.RLock()
	c := p.streams[at]
	p.mu.RUnlock()
	if c != nil {
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.streams) >= maxStreams {
		at.topic = otherTopics
	}
	if c := p.streams[at]; c != nil {
		return c
	}
	scope := p.labels.scope(p.scope.Tagged(map[string]string{"topic": at.topic}), at.label)
	c = &publishedCounters{published: scope.Counter("messages_published"), duplicates: scope.Counter("publish_duplicates")}
	p.streams[at] = c
	return c
}
