package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// verb is what happened to a delivery.
type verb string

const (
	delivered verb = "delivered"
	settling  verb = "settling" // the handler is done; the outcome is not durable yet
	acked     verb = "acked"
	nacked    verb = "nacked"
	postponed verb = "postponed"
	rejected  verb = "rejected"
	extended  verb = "extended"
	crashed   verb = "crashed" // whatever the consumer had out has ended
	noted     verb = "note"
)

// event is one line of a history.
type event struct {
	at       time.Duration
	verb     verb
	consumer string
	delivery int // counted from 1; ties the events of a delivery together
	attempt  int
	msg      backend.Message
	err      error
	note     string
}

func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs %-9s %s", e.at.Seconds(), e.verb, e.consumer)
	if e.delivery > 0 {
		fmt.Fprintf(&b, " #%d %s/%s/%s/%s offset %d attempt %d", e.delivery,
			short(string(e.msg.Tenant)), short(e.msg.Topic), short(e.msg.PartitionKey), short(e.msg.ID), e.msg.Offset, e.attempt)
	}
	if e.note != "" {
		b.WriteString(" " + e.note)
	}
	if e.err != nil {
		fmt.Fprintf(&b, " error: %v", e.err)
	}
	return b.String()
}

// short shows an identifier by its end, which is where those of a case differ.
func short(s string) string {
	const limit = 24
	if r := []rune(s); len(r) > limit {
		s = "…" + string(r[len(r)-limit:])
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '/' }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// history records what the consumers of a case saw, in one order.
type history struct {
	start time.Time

	mu      sync.Mutex
	events  []event
	count   int           // of deliveries
	changed chan struct{} // closed by the next event
}

func newHistory() *history {
	return &history{start: time.Now(), changed: make(chan struct{})}
}

func (h *history) add(e event) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.at = time.Since(h.start)
	if e.verb == delivered {
		h.count++
		e.delivery = h.count
	}
	h.events = append(h.events, e)
	close(h.changed)
	h.changed = make(chan struct{})
	return e.delivery
}

func (h *history) notef(format string, args ...any) {
	h.add(event{verb: noted, note: fmt.Sprintf(format, args...)})
}

// log returns what happened so far.
func (h *history) log() timeline {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.events)
}

// wait returns once the history satisfies cond, or with ctx.
func (h *history) wait(ctx context.Context, cond condition) error {
	return h.waitFrom(ctx, 0, cond)
}

// waitFrom leaves out the first events, already seen.
func (h *history) waitFrom(ctx context.Context, seen int, cond condition) error {
	for {
		h.mu.Lock()
		fresh, changed := h.events[seen:], h.changed // events are only appended, never changed
		h.mu.Unlock()
		for _, e := range fresh {
			cond.see(e)
		}
		seen += len(fresh)
		if cond.met() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// String shows the end of the history: that is where it went wrong.
func (h *history) String() string {
	const limit = 300
	events := h.log()
	var b strings.Builder
	if n := len(events) - limit; n > 0 {
		fmt.Fprintf(&b, "… %d earlier events\n", n)
		events = events[n:]
	}
	for _, e := range events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// partition is the unit of order.
type partition struct {
	tenant tenants.ID
	topic  string
	key    string
}

func partitionOf(m backend.Message) partition {
	return partition{m.Tenant, m.Topic, m.PartitionKey}
}

// identity names a message for good.
type identity struct {
	partition
	id string
}

func identityOf(m backend.Message) identity {
	return identity{partitionOf(m), m.ID}
}

func (i identity) String() string {
	return strings.Join([]string{short(string(i.tenant)), short(i.topic), short(i.key), short(i.id)}, "/")
}

// timeline is a history that no longer changes.
type timeline []event

// only keeps the events that satisfy all of keep.
func (l timeline) only(keep ...func(event) bool) timeline {
	var out timeline
	for _, e := range l {
		if keeps(e, keep) {
			out = append(out, e)
		}
	}
	return out
}

func keeps(e event, keep []func(event) bool) bool {
	return !slices.ContainsFunc(keep, func(f func(event) bool) bool { return !f(e) })
}

// attempt keeps events of deliveries that are the n-th of their message.
func attempt(n int) func(event) bool {
	return func(e event) bool { return e.attempt == n }
}

// is keeps events of a verb.
func is(v verb) func(event) bool {
	return func(e event) bool { return e.verb == v }
}

// by keeps events of the named consumers.
func by(consumers ...string) func(event) bool {
	return func(e event) bool { return slices.Contains(consumers, e.consumer) }
}

// of keeps events of one message, whatever its offset.
func of(m backend.Message) func(event) bool {
	return func(e event) bool { return e.delivery > 0 && identityOf(e.msg) == identityOf(m) }
}

// onTopic keeps events of one topic.
func onTopic(topic string) func(event) bool {
	return func(e event) bool { return e.delivery > 0 && e.msg.Topic == topic }
}

// in keeps events of one tenant.
func in(t tenants.ID) func(event) bool {
	return func(e event) bool { return e.delivery > 0 && e.msg.Tenant == t }
}

// has tells whether some event satisfies all of keep.
func (l timeline) has(keep ...func(event) bool) bool {
	return len(l.only(keep...)) > 0
}

// attempts lists the attempts at a message in the order seen.
func (l timeline) attempts(m backend.Message) []int {
	var out []int
	for _, e := range l.only(is(delivered), of(m)) {
		out = append(out, e.attempt)
	}
	return out
}
