package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var orderCases = []testCase{
	{"StrictOrderSurvivesNacks", func(s *stage) { orderUnderNacks(s, backend.Strict) }},
	{"RelaxedLosesNothingUnderNacks", func(s *stage) { orderUnderNacks(s, backend.Relaxed) }},
	{"StrictNackBlocksItsPartitionOnly", strictNackBlocks},
	{"RelaxedNackHoldsUpNothing", relaxedNackFlows},
	{"StrictIsOneAtATime", strictOneAtATime},
	{"RelaxedIsSeveralAtATime", relaxedSeveral},
	{"MaxInFlightIsKept", maxInFlight},
}

var errTest = errors.New("test failure")

// orderUnderNacks publishes to many partitions while two processes consume and
// fail at random.
func orderUnderNacks(s *stage, ordering backend.Ordering) {
	const partitions, rounds = 16, 25
	a, b := s.tenant("a"), s.tenant("b")
	processes := []*process{s.open(a, b), s.open(a, b)}
	for i, p := range processes {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		var mu sync.Mutex
		fail := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(5) == 0
		}
		s.subscribe(p, backend.SubscriptionConfig{
			Group: group, Ordering: ordering, MaxInFlight: 40, BatchSize: 7,
			Retry: backend.RetryPolicy{MaxAttempts: backend.MaxMaxAttempts, InitialBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		}).handle(func(d *delivery) {
			if fail() {
				d.must(d.nack(errTest))
				return
			}
			d.done()
		})
	}

	published := make([][]backend.Message, 4)
	var wg sync.WaitGroup
	for i := range published {
		wg.Go(func() {
			for n := range rounds {
				for k := i; k < partitions; k += len(published) {
					tenant := a
					if k%3 == 0 {
						tenant = b
					}
					m := message(tenant, fmt.Sprintf("key%02d", k), fmt.Sprintf("m%02d", n))
					s.expect(m)
					receipts, err := processes[i%2].Publish(s.ctx, m)
					if err != nil {
						s.Errorf("Publish: %v", err)
						return
					}
					m.Offset = receipts[0].Offset
					published[i] = append(published[i], m)
				}
			}
		})
	}
	wg.Wait()
	var msgs []backend.Message
	for _, list := range published {
		msgs = append(msgs, list...)
	}
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.attemptsCount(), l.inOrder(ordering))
	if ordering == backend.Strict {
		s.faultless(l.oneAtATime())
	}
	s.drained(a, b)
}

func strictNackBlocks(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: group, Retry: backend.RetryPolicy{InitialBackoff: never, MaxBackoff: never},
	})
	blocked := s.publish(p, messages(a, "blocked", 3)...)
	d := c.expect(blocked[0])
	d.must(d.nack(errTest))
	for _, m := range s.publish(p, messages(a, "flowing", 30)...) {
		c.expect(m).done()
	}
	s.publish(p, message(a, "blocked", "later"))
	for _, m := range s.publish(p, messages(a, "flowing later", 5)...) {
		c.expect(m).done()
	}
	c.stop()
}

func relaxedNackFlows(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: group, Ordering: backend.Relaxed, Retry: backend.RetryPolicy{InitialBackoff: never, MaxBackoff: never},
		BatchSize: 5, // what lies beyond the first batch is to come as well
	})
	msgs := s.publish(p, messages(a, "key", 30)...)
	for i, m := range msgs {
		d := c.expect(m)
		if i%10 == 0 {
			d.must(d.nack(errTest))
			continue
		}
		d.done()
	}
	for _, m := range s.publish(p, message(a, "key", "later"), message(a, "other", "later")) {
		_ = m
		c.next().done()
	}
	c.stop()

	// What was settled beyond the failed ones stays settled for the next owner.
	c = s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed})
	c.expect(s.publish(p, message(a, "key", "last"))[0]).done()
	c.stop()
	s.faultless(s.history.log().attemptsIn(1))
}

// strictOneAtATime holds the first message of each partition: all other
// partitions' first messages come, no partition's second.
func strictOneAtATime(s *stage) {
	const partitions = 10
	a := s.tenant("a")
	p := s.open(a)
	for n := range 3 {
		for k := range partitions {
			s.publish(p, message(a, fmt.Sprintf("key%d", k), fmt.Sprintf("m%d", n)))
		}
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for range 3 {
		var held []*delivery
		for range partitions {
			held = append(held, c.next())
		}
		s.pass(p)
		c.nothing()
		for _, d := range held {
			d.done()
		}
	}
	l := s.history.log()
	s.faultless(l.oneAtATime(), l.inOrder(backend.Strict))
	s.finish(c, a)
}

func relaxedSeveral(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed, BatchSize: 3})
	msgs := s.publish(p, messages(a, "key", 20)...)
	var held []*delivery
	for _, m := range msgs {
		held = append(held, c.expect(m)) // begins in order, waits for none
	}
	for i := range held {
		held[len(held)-1-i].done() // ends in any
	}
	s.finish(c, a)
}

func maxInFlight(s *stage) {
	const limit = 5
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	var msgs []backend.Message
	for k := range 20 {
		msgs = append(msgs, s.publish(p, message(a, fmt.Sprintf("key%d", k), "m"), message(b, fmt.Sprintf("key%d", k), "m"))...)
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, MaxInFlight: limit})
	var held []*delivery
	for range limit {
		held = append(held, c.next())
	}
	for range len(msgs) - limit {
		s.pass(p)
		c.nothing()
		held[0].done()
		held = append(held[1:], c.next())
	}
	for _, d := range held {
		d.done()
	}
	s.faultless(s.history.log().only(onTopic(topic)).exactlyOnce(msgs))
	s.finish(c, a, b)
}
