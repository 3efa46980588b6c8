package backendtest

import (
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
)

var pollCases = []testCase{
	{"PublishWakesItsOwnProcess", wakeUp},
	{"PublishOfAnotherProcessIsPolledFor", pollOthers},
	{"RetriesNeedNoPoll", retryWithoutPoll},
}

// wakeUp lets a subscriber idle until it looks for work rarely. Then it sees
// what its own process publishes before what another did earlier.
func wakeUp(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, PollInterval: backend.MaxPollInterval})
	for i := range 5 {
		for range 4 {
			s.pass(other)
		}
		s.publish(other, message(a, fmt.Sprintf("a%d", i), "of another process"))
		own := s.publish(p, message(a, fmt.Sprintf("b%d", i), "of its own"))[0]
		first := c.next()
		first.done()
		c.next().done()
		if first.Message().ID == own.ID { // no poll came between by chance
			s.finish(c, a)
			return
		}
	}
	s.Error("what the process publishes itself is not noticed before the next poll")
}

func pollOthers(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open()
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for i := range 5 {
		c.expect(s.publish(other, message(a, fmt.Sprintf("key%d", i%2), fmt.Sprint(i)))[0]).done()
	}
	s.finish(c, a)
}

func retryWithoutPoll(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: group, PollInterval: backend.MaxPollInterval, Retry: quickRetry, VisibilityTimeout: shortVisibility,
	})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	d.must(d.nack(errTest))
	d = c.expect(m)
	d.must(d.postpone(shortVisibility))
	d = c.expect(m)
	d.ended()
	d.leave()
	c.expect(m).done()
	s.finish(c, a)
}
