package backendtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var rebalanceCases = []testCase{
	{"PartitionsAreSharedFairly", fairShare},
	{"StrictHandoverUnderLoad", func(s *stage) { handover(s, backend.Strict) }},
	{"RelaxedHandoverUnderLoad", func(s *stage) { handover(s, backend.Relaxed) }},
	{"ReleasedPartitionsAreTakenAtOnce", releasedAtOnce},
}

// attentive is for cases in which subscribers are to notice each other soon,
// and to lose no lease on a busy machine.
func attentive(ordering backend.Ordering) backend.SubscriptionConfig {
	return backend.SubscriptionConfig{Group: group, Ordering: ordering, LeaseRenewal: 100 * time.Millisecond, Retry: quickRetry}
}

// rounds has every partition deliver one message a round, and holds all of a
// round's deliveries until they are out together, so that it can be told who
// has what. The messages of many rounds lie ready: a partition changes hands by
// being handed over, not by running dry.
type rounds struct {
	s          *stage
	p          *process
	partitions []partition

	n         int // rounds played
	published int // rounds
	mark      int // events there were before this round could begin

	mu      sync.Mutex
	release map[string]chan struct{} // by message id
	all     []backend.Message
}

const (
	roundsReady = 60
	// roundPace keeps a fast backend from playing more rounds than the
	// subscribers take to notice each other.
	roundPace = 10 * time.Millisecond
)

func roundID(n int) string { return fmt.Sprintf("round %04d", n) }

func (r *rounds) handler(d *delivery) {
	r.mu.Lock()
	release := r.release[d.Message().ID]
	r.mu.Unlock()
	select {
	case <-release:
		d.done()
	case <-d.Context().Done():
	}
}

// publish makes more rounds ready.
func (r *rounds) publish() {
	r.s.Helper()
	var batch []backend.Message
	r.mu.Lock()
	for range roundsReady {
		id := roundID(r.published)
		r.release[id] = make(chan struct{})
		for _, p := range r.partitions {
			batch = append(batch, message(p.tenant, p.key, id))
		}
		r.published++
	}
	r.mu.Unlock()
	r.all = append(r.all, r.s.publish(r.p, batch...)...)
}

// play plays a round and returns how many of a tenant's partitions each
// consumer held.
func (r *rounds) play() map[tenants.ID]map[string]int {
	r.s.Helper()
	if r.published < r.n+roundsReady {
		r.publish()
	}
	id := roundID(r.n)
	out := &countCondition{wants: len(r.partitions), keep: []func(event) bool{
		is(delivered), func(e event) bool { return e.msg.ID == id },
	}}
	ctx, cancel := r.s.timeout()
	defer cancel()
	if r.s.history.waitFrom(ctx, r.mark, out) != nil {
		r.s.Fatalf("not within %v: one delivery from every partition: %v", patience, out)
	}
	held := make(map[tenants.ID]map[string]int)
	for _, e := range out.events {
		if held[e.msg.Tenant] == nil {
			held[e.msg.Tenant] = make(map[string]int)
		}
		held[e.msg.Tenant][e.consumer]++
	}
	r.mark = len(r.s.history.log())
	close(r.release[id])
	r.n++
	return held
}

// until plays rounds until every tenant's partitions are shared as wanted.
func (r *rounds) until(what string, share map[*consumer][2]int) {
	r.s.Helper()
	pace := time.NewTicker(roundPace)
	defer pace.Stop()
	for began := time.Now(); time.Since(began) < patience; <-pace.C {
		held := r.play()
		fits := true
		for _, counts := range held {
			for c, between := range share {
				fits = fits && counts[c.name] >= between[0] && counts[c.name] <= between[1]
			}
		}
		if fits {
			return
		}
		r.s.history.notef("shares %v", held)
	}
	r.s.Fatalf("not within %v: %s", patience, what)
}

// finish lets all go that is ready.
func (r *rounds) finish() {
	r.s.Helper()
	for ; r.n < r.published; r.n++ {
		close(r.release[roundID(r.n)])
	}
	r.s.within("all acked", acks(r.all))
}

func fairShare(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	r := &rounds{s: s, p: s.open(), release: make(map[string]chan struct{})}
	for k := range 7 {
		r.partitions = append(r.partitions, partition{a, topic, fmt.Sprintf("key%d", k)}, partition{b, topic, fmt.Sprintf("key%d", k)})
	}
	join := func() *consumer { return s.subscribe(s.open(a, b), attentive(backend.Strict)).handle(r.handler) }

	first := join()
	r.until("the only one has all", map[*consumer][2]int{first: {7, 7}})
	second := join()
	r.until("two have half each", map[*consumer][2]int{first: {3, 4}, second: {3, 4}})
	third := join()
	r.until("three have a third each", map[*consumer][2]int{first: {2, 3}, second: {2, 3}, third: {2, 3}})
	r.finish()
	second.stop()
	r.until("the others take over what the second had", map[*consumer][2]int{first: {3, 4}, third: {3, 4}})
	r.finish()
	first.stop()
	r.until("the last has all", map[*consumer][2]int{third: {7, 7}})
	r.finish()
	third.stop()
	l := s.history.log()
	s.faultless(l.exactlyOnce(r.all), l.attemptsIn(1), l.inOrder(backend.Strict), l.oneAtATime())
	s.gone(a, b)
}

// handover lets subscribers come and go while there is a backlog.
func handover(s *stage, ordering backend.Ordering) {
	const partitions, backlog = 12, 400
	a, b := s.tenant("a"), s.tenant("b")
	publisher := s.open()
	cfg := attentive(ordering)
	cfg.BatchSize = 10
	join := func() *consumer { return s.subscribe(s.open(a, b), cfg).ackAll() }

	var msgs []backend.Message
	// until keeps a backlog until each of the consumers has had more deliveries.
	until := func(more int, consumers ...*consumer) {
		s.Helper()
		had := func(c *consumer) int { return len(s.history.log().only(by(c.name), is(delivered))) }
		wants := make(map[*consumer]int)
		for _, c := range consumers {
			wants[c] = had(c) + more
		}
		for range 100 {
			var batch []backend.Message
			for k := range 10 * partitions {
				tenant := a
				if k%3 == 0 {
					tenant = b
				}
				batch = append(batch, message(tenant, fmt.Sprintf("key%02d", k%partitions), fmt.Sprintf("%05d", len(msgs)+k)))
			}
			msgs = append(msgs, s.publish(publisher, batch...)...)
			s.within("the backlog shrinks", count(len(msgs)-backlog, is(acked)))
			if !slices.ContainsFunc(consumers, func(c *consumer) bool { return had(c) < wants[c] }) {
				return
			}
		}
		s.Fatalf("not everybody had %d deliveries", more)
	}

	first := join()
	until(100, first)
	second := join()
	until(100, second)
	third := join()
	until(100, first, third)
	first.stop()
	until(100, second, third)
	third.stop()
	until(100, second)
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.attemptsIn(1), l.inOrder(ordering))
	if ordering == backend.Strict {
		s.faultless(l.oneAtATime())
	}
	s.finish(second, a, b)
}

// releasedAtOnce would wait for minutes if a stopped subscriber's leases had
// to run out.
func releasedAtOnce(s *stage) {
	a := s.tenant("a")
	cfg := backend.SubscriptionConfig{Group: group, LeaseDuration: 10 * patience, LeaseRenewal: patience / 30}
	msgs := s.publish(s.open(), messages(a, "key", 10)...)
	for _, m := range msgs {
		c := s.subscribe(s.open(a), cfg)
		c.expect(m).done()
		c.stop()
	}
	s.faultless(s.history.log().attemptsIn(1))
	s.gone(a)
}
