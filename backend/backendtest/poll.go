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

// wakeUp would wait a minute for its second message without the wake-up.
func wakeUp(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, PollInterval: backend.MaxPollInterval})
	for i := range 5 {
		for _, m := range []backend.Message{message(a, "key", fmt.Sprint(i)), message(b, fmt.Sprintf("key%d", i), "m")} {
			c.expect(s.publish(p, m)[0]).done()
			s.drained(a, b) // so that the next finds nothing but the wake-up
		}
	}
	s.finish(c, a, b)
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
