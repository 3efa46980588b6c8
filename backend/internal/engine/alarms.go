package engine

import (
	"container/heap"
	"time"
)

// alarms is a heap of the partitions that want attention at a known time, one
// place each however many of their messages wait: the earliest counts.
type alarms []*partition

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].wakeAt.Before(a[j].wakeAt) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].wakeIndex, a[j].wakeIndex = i, j
}

// Push implements heap.Interface.
func (a *alarms) Push(x any) {
	p := x.(*partition)
	p.wakeIndex = len(*a)
	*a = append(*a, p)
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	last := len(*a) - 1
	p := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	p.wakeIndex = -1
	return p
}

// set makes p's alarm go off at the given time, unless it does earlier anyway.
// It tells whether p is the next one now.
func (a *alarms) set(p *partition, at time.Time) bool {
	switch {
	case p.wakeIndex < 0:
		p.wakeAt = at
		heap.Push(a, p)
	case at.Before(p.wakeAt):
		p.wakeAt = at
		heap.Fix(a, p.wakeIndex)
	default:
		return false
	}
	return p.wakeIndex == 0
}

func (a *alarms) remove(p *partition) {
	if p.wakeIndex >= 0 {
		heap.Remove(a, p.wakeIndex)
	}
}

// due removes and returns the next partition whose alarm has gone off.
func (a *alarms) due(now time.Time) *partition {
	if len(*a) == 0 || (*a)[0].wakeAt.After(now) {
		return nil
	}
	return heap.Pop(a).(*partition)
}
