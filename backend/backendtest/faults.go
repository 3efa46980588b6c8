package backendtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenantmq/tenantmq/backend"
)

// exactlyOnce wants each of msgs acked once and nothing acked besides.
func (l timeline) exactlyOnce(msgs []backend.Message) (faults []string) {
	acks := make(map[identity]int)
	for _, e := range l {
		if e.verb == acked && e.err == nil {
			acks[identityOf(e.msg)]++
		}
	}
	for _, m := range msgs {
		id := identityOf(m)
		if n := acks[id]; n != 1 {
			faults = append(faults, fmt.Sprintf("message %v acked %d times, want once", id, n))
		}
		delete(acks, id)
	}
	for id, n := range acks {
		faults = append(faults, fmt.Sprintf("message %v acked %d times, though nobody published it", id, n))
	}
	return faults
}

// inOrder wants the deliveries of each partition to begin in order of offset:
// a message that comes again may stand behind later ones only if relaxed.
func (l timeline) inOrder(ordering backend.Ordering) (faults []string) {
	last := make(map[partition]event)
	seen := make(map[identity]bool)
	for _, e := range l.only(is(delivered)) {
		p, id := partitionOf(e.msg), identityOf(e.msg)
		again := seen[id]
		seen[id] = true
		before, ok := last[p]
		if ok && e.msg.Offset < before.msg.Offset {
			if ordering == backend.Strict || !again {
				faults = append(faults, fmt.Sprintf("order broken:\n\t%v\n\t%v", before, e))
			}
			continue
		}
		last[p] = e
	}
	return faults
}

// oneAtATime wants no delivery of a partition to begin before the one before
// it has ended: settled by its handler, or cut off by a crash.
func (l timeline) oneAtATime() (faults []string) {
	out := make(map[partition]event)
	for _, e := range l {
		switch e.verb {
		case delivered:
			if before, ok := out[partitionOf(e.msg)]; ok {
				faults = append(faults, fmt.Sprintf("two at once in a strict partition:\n\t%v\n\t%v", before, e))
			}
			out[partitionOf(e.msg)] = e
		case settling:
			if p := partitionOf(e.msg); out[p].delivery == e.delivery {
				delete(out, p)
			}
		case crashed:
			maps.DeleteFunc(out, func(_ partition, d event) bool { return d.consumer == e.consumer })
		}
	}
	return faults
}

// attemptsCount wants the attempts at a message to be 1, 2, 3 and so on, by
// whatever consumer of the group.
func (l timeline) attemptsCount() (faults []string) {
	last := make(map[identity]int)
	for _, e := range l.only(is(delivered)) {
		id := identityOf(e.msg)
		if e.attempt != last[id]+1 {
			faults = append(faults, fmt.Sprintf("attempt %d follows %d: %v", e.attempt, last[id], e))
		}
		last[id] = e.attempt
	}
	return faults
}

// attemptsIn wants every delivery's attempt among those allowed.
func (l timeline) attemptsIn(allowed ...int) (faults []string) {
	for _, e := range l.only(is(delivered)) {
		if !slices.Contains(allowed, e.attempt) {
			faults = append(faults, fmt.Sprintf("attempt not in %v: %v", allowed, e))
		}
	}
	return faults
}
