package backendtest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
)

var drainCases = []testCase{
	{"ThousandPartitionsOfOneMessage", thousandPartitions},
	{"DrainedLeavesNothing", drainLeavesNothing},
	{"DrainedOfSeveralGroupsLeavesNothing", drainGroups},
}

// thousandPartitions has keys whose order is not the same to Go and to the
// database, so that a listing in pages shows whether it skips any.
func thousandPartitions(s *stage) {
	const partitions = 1500
	a := s.tenant("a")
	p := s.open(a)
	alphabet := []rune("aAbé\x01\x1f !~\u00ff\u0101😀\ufb01\U0010ffff'\\")
	random := rand.New(rand.NewPCG(2, 3))
	keys := make(map[string]bool)
	for len(keys) < partitions {
		key := make([]rune, 1+random.IntN(6))
		for i := range key {
			key[i] = alphabet[random.IntN(len(alphabet))]
		}
		if backend.CheckPartitionKey(string(key)) == nil {
			keys[string(key)] = true
		}
	}
	var batch []backend.Message
	for key := range keys {
		batch = append(batch, message(a, key, "m"))
	}
	s.publish(p, batch...)
	c := s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group, MaxInFlight: 200}).ackAll()
	s.within("all acked", acks(batch))
	l := s.history.log()
	s.faultless(l.exactlyOnce(batch), l.attemptsIn(1))
	s.finish(c, a)
}

// drainLeavesNothing drains partitions that went through everything while the
// subscriber stays.
func drainLeavesNothing(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	cfg := backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed, Retry: quickRetry, DeadLetter: backend.DeadLetterPolicy{Disabled: true}}
	var seen sync.Map
	s.subscribe(p, cfg).handle(func(d *delivery) {
		_, again := seen.LoadOrStore(identityOf(d.Message()), true)
		switch n := d.Message().Offset % 5; {
		case again || n == 0:
			d.must(d.ack())
		case n == 1:
			d.must(d.nack(errTest))
		case n == 2:
			d.must(d.postpone(backend.MinDuration))
		case n == 3:
			d.must(d.reject(errTest))
		default:
			d.must(d.extend(patience))
			d.must(d.ack())
		}
	})
	for round := range 5 {
		var batch []backend.Message
		for i := range 60 {
			batch = append(batch, message(a, fmt.Sprintf("key%d", i%(round*3+1)), fmt.Sprintf("%d-%d", round, i)))
		}
		s.publish(p, batch...)
		s.drained(a)
	}
}

// drainGroups has groups of different pace pass the same messages.
func drainGroups(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open(a)
	fast := s.subscribe(p, backend.SubscriptionConfig{Group: "fast", Ordering: backend.Relaxed}).ackAll()
	slow := s.subscribe(other, backend.SubscriptionConfig{Group: "slow", MaxInFlight: 1})
	var batch []backend.Message
	for i := range 60 {
		batch = append(batch, message(a, fmt.Sprintf("key%d", i%7), fmt.Sprint(i)))
	}
	s.publish(p, batch...)
	s.within("the fast group has all", acks(batch, by(fast.name)))
	for range batch {
		slow.next().done()
	}
	s.drained(a)
	fast.stop()
	s.finish(slow, a)
}
