package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var postponeCases = []testCase{
	{"StrictPostponeHoldsThePartition", func(s *stage) { postponeHolds(s, backend.Strict) }},
	{"RelaxedPostponeHoldsThePartition", func(s *stage) { postponeHolds(s, backend.Relaxed) }},
	{"StrictPostponeSpendsNoAttempt", func(s *stage) { postponeSpendsNothing(s, backend.Strict) }},
	{"RelaxedPostponeSpendsNoAttempt", func(s *stage) { postponeSpendsNothing(s, backend.Relaxed) }},
	{"StrictPostponeOutlivesTheSubscriber", func(s *stage) { postponeOutlives(s, backend.Strict) }},
	{"RelaxedPostponeOutlivesTheSubscriber", func(s *stage) { postponeOutlives(s, backend.Relaxed) }},
	{"RelaxedPostponeBehindOthersInFlight", postponeAmongOthers},
}

func postponeHolds(s *stage, ordering backend.Ordering) {
	a := s.tenant("a")
	p := s.open(a)
	// One at a time, so that nothing of the partition is out already.
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: ordering, MaxInFlight: 1})
	held := s.publish(p, messages(a, "held", 5)...)
	d := c.expect(held[0])
	d.must(d.postpone(never))
	for _, m := range s.publish(p, messages(a, "flowing", 30)...) {
		c.expect(m).done()
	}
	s.publish(p, message(a, "held", "later"))
	for _, m := range s.publish(p, messages(a, "flowing later", 5)...) {
		c.expect(m).done()
	}
	c.stop()
}

func postponeSpendsNothing(s *stage, ordering backend.Ordering) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: group, Ordering: ordering, MaxInFlight: 1, Retry: backend.RetryPolicy{MaxAttempts: 2, InitialBackoff: time.Millisecond},
	})
	m := s.publish(p, message(a, "key", "m"))[0]
	for range 5 {
		d := c.expect(m)
		d.must(d.postpone(10 * time.Millisecond))
	}
	d := c.expect(m)
	d.must(d.nack(errTest))
	d = c.expect(m) // one attempt is left
	d.must(d.postpone(10 * time.Millisecond))
	c.expect(m).done()
	if got, want := s.history.log().attempts(m), []int{1, 1, 1, 1, 1, 1, 2, 2}; !slices.Equal(got, want) {
		s.Errorf("attempts %v, want %v", got, want)
	}
	s.finish(c, a)
}

func postponeOutlives(s *stage, ordering backend.Ordering) {
	a := s.tenant("a")
	p := s.open(a)
	cfg := backend.SubscriptionConfig{Group: group, Ordering: ordering, MaxInFlight: 1}
	var held []backend.Message
	c := s.subscribe(p, cfg)
	for k := range 3 {
		msgs := s.publish(p, messages(a, fmt.Sprintf("held%d", k), 3)...)
		d := c.expect(msgs[0])
		delay := time.Second // not over before the next is delivered
		if k == 2 {
			delay = never
		} else {
			held = append(held, msgs...)
		}
		d.must(d.postpone(delay))
	}
	c.stop()

	// The next owner keeps the barrier, and lifts it in time.
	c = s.subscribe(s.open(a), cfg).ackAll()
	s.within("the postponed and all behind them", acks(held))
	c.stop()
	l := s.history.log()
	s.faultless(l.inOrder(backend.Strict), l.only(by(c.name)).exactlyOnce(held))
}

func postponeAmongOthers(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed, MaxInFlight: 3})
	msgs := s.publish(p, messages(a, "key", 6)...)
	var out []*delivery
	for _, m := range msgs[:3] {
		out = append(out, c.expect(m))
	}
	out[1].must(out[1].postpone(100 * time.Millisecond))
	out[0].done() // those that were out already may settle
	out[2].done()
	for _, m := range append(msgs[1:2:2], msgs[3:]...) {
		c.expect(m).done()
	}
	s.finish(c, a)
}
