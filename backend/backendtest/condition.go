package backendtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/backend"
)

// condition is something that a history comes to satisfy. It sees each event
// once, so that waiting costs nothing beside what is waited for.
type condition interface {
	see(event)
	met() bool
	String() string // what is missing
}

// ackCondition wants messages acked durably.
type ackCondition struct {
	keep    []func(event) bool
	pending map[identity]bool
	total   int
}

// acks wants each of msgs acked durably, by events that satisfy all of keep.
func acks(msgs []backend.Message, keep ...func(event) bool) condition {
	c := &ackCondition{keep: keep, pending: make(map[identity]bool)}
	for _, m := range msgs {
		c.pending[identityOf(m)] = true
	}
	c.total = len(c.pending)
	return c
}

func (c *ackCondition) see(e event) {
	if e.verb == acked && e.err == nil && keeps(e, c.keep) {
		delete(c.pending, identityOf(e.msg))
	}
}

func (c *ackCondition) met() bool { return len(c.pending) == 0 }

func (c *ackCondition) String() string {
	var names []string
	for id := range c.pending {
		names = append(names, id.String())
	}
	slices.Sort(names)
	return fmt.Sprintf("%d of %d messages not acked: %s", len(names), c.total, strings.Join(names[:min(len(names), 10)], ", "))
}

// countCondition wants a number of events.
type countCondition struct {
	keep   []func(event) bool
	wants  int
	events []event
}

// count wants n events that satisfy all of keep.
func count(n int, keep ...func(event) bool) condition {
	return &countCondition{keep: keep, wants: n}
}

func (c *countCondition) see(e event) {
	if keeps(e, c.keep) {
		c.events = append(c.events, e)
	}
}

func (c *countCondition) met() bool { return len(c.events) >= c.wants }

func (c *countCondition) String() string {
	return fmt.Sprintf("%d of %d events", len(c.events), c.wants)
}

// every wants all of its conditions.
type every []condition

func (c every) see(e event) {
	for _, one := range c {
		one.see(e)
	}
}

func (c every) met() bool {
	return !slices.ContainsFunc(c, func(one condition) bool { return !one.met() })
}

func (c every) String() string {
	var missing []string
	for _, one := range c {
		if !one.met() {
			missing = append(missing, one.String())
		}
	}
	return strings.Join(missing, "; ")
}
