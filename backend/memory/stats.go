package memory

import (
	"slices"

	"github.com/tenantmq/tenantmq/tenants"
)

// Stats counts what is stored, by kind.
type Stats struct {
	Messages   int
	States     int // of messages that a group has failed, postponed, or settled ahead of its watermark
	Watermarks int // of groups in partitions
	Leases     int // those that ended and have not been purged included
	Heartbeats int // likewise
	Groups     int // registered; they stay until dropped
}

// Stats counts the rows of the given tenants, or of all if none are given. It
// is for tests: it visits every partition while the queue is locked, and goes
// on working after Close.
func (q *Queue) Stats(list ...tenants.ID) Stats {
	return q.tables.stats(list)
}

// MessagesByTopic counts the stored messages of every topic, all tenants
// together. It is for tests, as Stats is.
func (q *Queue) MessagesByTopic() map[string]int {
	q.tables.mu.Lock()
	defer q.tables.mu.Unlock()
	counts := make(map[string]int)
	for at, t := range q.tables.topics {
		for _, p := range t.all() {
			counts[at.topic] += p.messages.Len()
		}
	}
	return counts
}

func (tb *tables) stats(list []tenants.ID) Stats {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	var n Stats
	for at, t := range tb.topics {
		if len(list) == 0 || slices.Contains(list, at.tenant) {
			n.count(t)
		}
	}
	return n
}

func (n *Stats) count(t *topicTable) {
	for _, g := range t.groups {
		n.Heartbeats += len(g.members)
		if g.registered {
			n.Groups++
		}
	}
	for _, p := range t.all() {
		n.Messages += p.messages.Len()
		for _, own := range p.groups {
			n.States += own.states.Len()
			if own.stored {
				n.Watermarks++
			}
			if own.lease != nil {
				n.Leases++
			}
		}
	}
}
