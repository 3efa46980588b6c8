package backendtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// patience bounds the wait for what must happen. It is no measure of
	// speed: a case passes as soon as the event is there.
	patience = 30 * time.Second

	// never is a backoff that does not end within a test: full jitter makes
	// one of less than a minute a matter of 1 in 500,000.
	never = backend.MaxDuration

	topic = "changes"
	group = "landers"
)

// stage is where one case plays: its storage, the queues on it, and the
// history of what they delivered.
type stage struct {
	*testing.T
	store   Storage
	history *history
	ctx     context.Context // ends with the case, for handlers that wait

	mu        sync.Mutex
	consumers []*consumer
	sent      map[identity]backend.Message
}

// process is a queue with what the stage knows of it.
type process struct {
	Queue
	s       *stage
	list    []tenants.ID
	severed bool // guarded by s.mu
}

func newStage(t *testing.T, f Factory) *stage {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{
		T: t, store: f(t), history: newHistory(), ctx: ctx,
		sent: make(map[identity]backend.Message),
	}
	t.Cleanup(func() { // after the queues are closed, each by a clean-up of its own
		cancel()
		for _, c := range s.consumers {
			c.collecting.Wait()
		}
		if t.Failed() {
			t.Logf("history:\n%v", s.history)
		}
	})
	return s
}

// tenant returns a tenant that no other case has.
func (s *stage) tenant(name string) tenants.ID {
	return tenants.ID(s.Name() + "/" + name)
}

// set lists tenants; none make the zero Set.
func (s *stage) set(list ...tenants.ID) tenants.Set {
	s.Helper()
	if len(list) == 0 {
		return tenants.Set{}
	}
	set, err := tenants.New(list...)
	if err != nil {
		s.Fatal(err)
	}
	return set
}

// open starts another process.
func (s *stage) open(list ...tenants.ID) *process {
	s.Helper()
	p := &process{Queue: s.store.Open(s.T, s.set(list...)), s: s, list: list}
	s.Cleanup(p.close)
	return p
}

// cut severs the process from its storage.
func (p *process) cut() (mend func()) {
	p.s.mu.Lock()
	p.severed = true
	p.s.mu.Unlock()
	again := p.s.store.Cut(p.s.T, p.Queue)
	return func() {
		again()
		p.s.mu.Lock()
		p.severed = false
		p.s.mu.Unlock()
	}
}

// crash cuts the process off for good. Its handlers end, as they would.
func (p *process) crash() {
	p.cut()
	for _, c := range p.s.of(p) {
		p.s.history.add(event{verb: crashed, consumer: c.name})
	}
	p.close()
}

// close ends the process: gracefully if nothing is out and nothing has failed.
// What is out at the end of a case has been left out on purpose.
func (p *process) close() {
	p.s.mu.Lock()
	hasty := p.severed || p.s.Failed()
	p.s.mu.Unlock()
	for _, c := range p.s.of(p) {
		hasty = hasty || c.unsettled()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if hasty {
		cancel()
	}
	if err := p.Close(ctx); err != nil && !hasty {
		p.s.Errorf("Close: %v", err)
	}
}

// of lists the consumers of a process.
func (s *stage) of(p *process) []*consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*consumer
	for _, c := range s.consumers {
		if c.process == p {
			out = append(out, c)
		}
	}
	return out
}

// message makes one whose payload and metadata tell it from every other.
func message(t tenants.ID, key, id string) backend.Message {
	return backend.Message{
		Tenant: t, Topic: topic, PartitionKey: key, ID: id,
		Payload:  fmt.Appendf(nil, "%s of %s for %s", id, key, t),
		Metadata: map[string]string{"id": id},
	}
}

// messages makes n of one partition, with ids in the order of names and
// numbers.
func messages(t tenants.ID, key string, n int) []backend.Message {
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = message(t, key, fmt.Sprintf("%s-%03d", key, i+1))
	}
	return msgs
}

// publish stores messages that are all new, and returns them with their
// offsets.
func (s *stage) publish(p *process, msgs ...backend.Message) []backend.Message {
	s.Helper()
	s.expect(msgs...)
	ctx, cancel := s.timeout()
	defer cancel()
	receipts, err := p.Publish(ctx, msgs...)
	if err != nil {
		s.Fatalf("Publish: %v", err)
	}
	return s.receive(msgs, receipts)
}

// receive checks the receipts of new messages.
func (s *stage) receive(msgs []backend.Message, receipts []backend.Receipt) []backend.Message {
	s.Helper()
	if len(receipts) != len(msgs) {
		s.Fatalf("%d receipts for %d messages", len(receipts), len(msgs))
	}
	out := make([]backend.Message, len(msgs))
	for i, m := range msgs {
		if receipts[i].Duplicate || receipts[i].Offset == 0 {
			s.Fatalf("receipt of the new message %v: %+v", identityOf(m), receipts[i])
		}
		m.Offset = receipts[i].Offset
		out[i] = m
	}
	return out
}

// expect makes the stage check deliveries of msgs byte for byte. Anything
// delivered that was not expected is a fault, dead letters aside. What was
// published first under an identity stays.
func (s *stage) expect(msgs ...backend.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		if _, ok := s.sent[identityOf(m)]; !ok {
			m.Payload, m.Metadata = bytes.Clone(m.Payload), maps.Clone(m.Metadata)
			s.sent[identityOf(m)] = m
		}
	}
}

// inspect compares a delivered message with the one published.
func (s *stage) inspect(d backend.Delivery) {
	got := d.Message()
	if d.Context() == nil || d.Attempt() < 1 || got.Offset == 0 || got.PublishedAt.IsZero() {
		s.Errorf("incomplete delivery of %v: attempt %d, offset %d, published at %v",
			identityOf(got), d.Attempt(), got.Offset, got.PublishedAt)
	}
	if _, ok := d.Failure(); ok {
		return
	}
	s.mu.Lock()
	want, ok := s.sent[identityOf(got)]
	s.mu.Unlock()
	switch {
	case !ok:
		s.Errorf("delivered, though nobody published it: %v", identityOf(got))
	case !bytes.Equal(got.Payload, want.Payload):
		s.Errorf("payload of %v: %d bytes %.60q, want %d bytes %.60q",
			identityOf(got), len(got.Payload), got.Payload, len(want.Payload), want.Payload)
	case !maps.Equal(got.Metadata, want.Metadata):
		s.Errorf("metadata of %v: %q, want %q", identityOf(got), got.Metadata, want.Metadata)
	}
}

// timeout bounds one call.
func (s *stage) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, patience)
}

// within waits until the history satisfies cond.
func (s *stage) within(what string, cond condition) {
	s.Helper()
	ctx, cancel := s.timeout()
	defer cancel()
	if s.history.wait(ctx, cond) != nil {
		s.Fatalf("not within %v: %s: %v", patience, what, cond)
	}
}

// eventually polls what gives no event: the storage.
func (s *stage) eventually(what string, cond func() bool) {
	s.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// pass lets the process do what it has to do: another subscription in it has a
// message delivered, several times over some tens of milliseconds. What was
// due to a consumer beside it, that consumer has had the chance to get.
func (s *stage) pass(p *process) {
	s.Helper()
	c := s.subscribeTo(p, "passing", backend.SubscriptionConfig{Group: "passing"})
	m := message(p.list[0], "key", fmt.Sprintf("after %d deliveries", len(s.history.log().only(is(delivered)))))
	m.Topic = "passing"
	s.publish(p, m)
	for range 3 {
		d := c.expect(m)
		d.must(d.postpone(10 * time.Millisecond))
	}
	c.expect(m).done()
	c.stop()
}

// drained waits until nothing is left of the tenants but what live
// subscribers keep.
func (s *stage) drained(list ...tenants.ID) {
	s.Helper()
	var rows map[string]int
	s.left(&rows, list, func(kind string) bool { return kind != Heartbeats })
}

// finish stops a consumer that has settled everything: nothing may be left of
// the tenants, and nothing may have been delivered beyond what it took.
func (s *stage) finish(c *consumer, list ...tenants.ID) {
	s.Helper()
	c.stop()
	if d, ok := <-c.sub.Deliveries(); ok {
		s.Errorf("%s: delivered besides: %v", c.name, identityOf(d.Message()))
	}
	s.gone(list...)
}

// gone waits until nothing at all is left of the tenants.
func (s *stage) gone(list ...tenants.ID) {
	s.Helper()
	var rows map[string]int
	s.left(&rows, list, func(string) bool { return true })
}

func (s *stage) left(rows *map[string]int, list []tenants.ID, counts func(kind string) bool) {
	s.Helper()
	defer func() {
		if s.Failed() {
			s.Logf("rows left: %v", *rows)
		}
	}()
	s.eventually("no rows left of drained partitions", func() bool {
		*rows = s.store.Rows(s.T, list...)
		for kind, n := range *rows {
			if n > 0 && counts(kind) {
				return false
			}
		}
		return true
	})
}

// faultless reports what a check of the history found.
func (s *stage) faultless(faults ...[]string) {
	s.Helper()
	const limit = 20
	for _, list := range faults {
		if n := len(list) - limit; n > 0 {
			list = append(list[:limit:limit], fmt.Sprintf("and %d more", n))
		}
		if len(list) > 0 {
			s.Errorf("%s", strings.Join(list, "\n"))
		}
	}
}
