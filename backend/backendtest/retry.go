package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var retryCases = []testCase{
	{"NackDeliversAgain", nackAgain},
	{"NackCountsAcrossProcesses", nackAcrossProcesses},
	{"BackoffStaysBelowItsMaximum", backoffBounded},
	{"BackoffGrows", backoffGrows},
	{"BackoffHasFullJitter", backoffJitter},
	{"SettlingTwiceIsRefused", settleTwice},
	{"SettlingConcurrentlySucceedsOnce", settleConcurrently},
	{"SettlingWithEndedContextLosesNothing", settleEndedContext},
}

var quickRetry = backend.RetryPolicy{InitialBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}

func nackAgain(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	msgs := s.publish(p, messages(a, "key", 2)...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry})
	for _, cause := range []error{errTest, nil, errors.New("")} {
		d := c.expect(msgs[0])
		if _, ok := d.Failure(); ok {
			s.Error("a failed message that is no dead letter has a Failure")
		}
		d.must(d.nack(cause))
	}
	c.expect(msgs[0]).done()
	c.expect(msgs[1]).done()
	if got, want := s.history.log().attempts(msgs[0]), []int{1, 2, 3, 4}; !slices.Equal(got, want) {
		s.Errorf("attempts %v, want %v", got, want)
	}
	s.finish(c, a)
}

func nackAcrossProcesses(s *stage) {
	a := s.tenant("a")
	cfg := backend.SubscriptionConfig{Group: group, Retry: quickRetry}
	msgs := s.publish(s.open(), messages(a, "key", 2)...)
	for range 3 {
		c := s.subscribe(s.open(a), cfg)
		d := c.expect(msgs[0])
		d.must(d.nack(errTest))
		c.stop() // a redelivery on offer that nobody took spends no attempt
	}
	c := s.subscribe(s.open(a), cfg)
	c.expect(msgs[0]).done()
	c.expect(msgs[1]).done()
	if got, want := s.history.log().attempts(msgs[0]), []int{1, 2, 3, 4}; !slices.Equal(got, want) {
		s.Errorf("attempts %v, want %v", got, want)
	}
	s.finish(c, a)
}

// backoffBounded would wait for days without the maximum.
func backoffBounded(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.Multiplier = backend.MaxMultiplier
	retry.MaxAttempts = 12
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry})
	m := s.publish(p, message(a, "key", "m"))[0]
	for range retry.MaxAttempts - 1 {
		d := c.expect(m)
		d.must(d.nack(errTest))
	}
	c.expect(m).done()
	s.finish(c, a)
}

// backoffGrows nacks messages whose waits grow a hundredfold beside one whose
// waits do not: in the time of a hundred attempts of the latter the others
// cannot make ten.
func backoffGrows(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	nack := func(d *delivery) { d.must(d.nack(errTest)) }
	growing := s.subscribe(p, backend.SubscriptionConfig{
		Group: "growing", Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond, Multiplier: 100, MaxBackoff: never, MaxAttempts: backend.MaxMaxAttempts},
	}).handle(nack)
	constant := s.subscribe(p, backend.SubscriptionConfig{
		Group: "constant", Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond, Multiplier: 1, MaxAttempts: backend.MaxMaxAttempts},
	}).handle(nack)
	for i := range 10 {
		s.publish(p, message(a, fmt.Sprintf("key%d", i), "m"))
	}
	s.within("attempts", every{
		count(1, by(constant.name), is(delivered), attempt(100)), count(10, by(growing.name), is(delivered), attempt(3)),
	})
	if n := len(s.history.log().only(by(growing.name), is(delivered), attempt(10))); n > 0 {
		s.Errorf("%d messages made 10 attempts with backoffs up to 100^8 ms", n)
	}
	for _, c := range []*consumer{growing, constant} {
		c.stop()
	}
}

// backoffJitter would have to wait half a minute for the first redelivery if
// the jitter took no more than half of the backoff.
func backoffJitter(s *stage) {
	const partitions = 150
	a := s.tenant("a")
	p := s.open(a)
	var batch []backend.Message
	for i := range partitions {
		batch = append(batch, message(a, fmt.Sprintf("key%d", i), "m"))
	}
	s.publish(p, batch...)
	retry := backend.RetryPolicy{InitialBackoff: 2 * patience, MaxBackoff: 2 * patience}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry}).handle(func(d *delivery) {
		d.must(d.nack(errTest))
	})
	again := func(e event) bool { return e.verb == delivered && e.attempt > 1 }
	s.within("a few redeliveries", count(3, again))
	// One attempt in a hundred comes within the first hundredth, not all.
	if n := len(s.history.log().only(again)); n > partitions/2 {
		s.Errorf("%d of %d came again within a small part of their backoff", n, partitions)
	}
	c.stop()
}

func settleTwice(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry})
	settle := map[string]func(*delivery) error{
		"ack":      func(d *delivery) error { return d.Ack(s.ctx) },
		"nack":     func(d *delivery) error { return d.Nack(s.ctx, errTest) },
		"postpone": func(d *delivery) error { return d.Postpone(s.ctx, time.Millisecond) },
		"reject":   func(d *delivery) error { return d.Reject(s.ctx, errTest) },
	}
	for first := range settle {
		m := s.publish(p, message(a, "key", first))[0]
		d := c.expect(m)
		d.must(d.settle(acked, func(context.Context) error { return settle[first](d) }))
		for second := range settle {
			if err := settle[second](d); !errors.Is(err, backend.ErrSettled) {
				s.Errorf("%s after %s: %v, want ErrSettled", second, first, err)
			}
		}
		if err := d.Extend(s.ctx, time.Second); err == nil {
			s.Errorf("extend after %s: no error", first)
		}
		if first == "nack" || first == "postpone" {
			c.expect(m).done()
		}
	}
	c.stop()
}

func settleConcurrently(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry})
	for _, m := range s.publish(p, messages(a, "key", 10)...) {
		d := c.expect(m)
		results := make(chan error, 8)
		for range cap(results) {
			go func() { results <- d.Ack(s.ctx) }()
		}
		succeeded := 0
		for range cap(results) {
			switch err := <-results; {
			case err == nil:
				succeeded++
			case !errors.Is(err, backend.ErrSettled):
				s.Errorf("concurrent Ack: %v", err)
			}
		}
		if succeeded != 1 {
			s.Errorf("%d of %d concurrent Acks of %v succeeded", succeeded, cap(results), m.ID)
		}
		d.record(acked, nil, "by one of many")
		d.leave()
	}
	s.finish(c, a)
}

// settleEndedContext gives up waiting for an outcome, which may then be either:
// settled, or delivered again once the visibility timeout is over.
func settleEndedContext(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry, VisibilityTimeout: 300 * time.Millisecond})
	msgs := s.publish(p, messages(a, "key", 6)...)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	d := c.expect(msgs[0])
	if err := d.settle(acked, func(context.Context) error { return d.Ack(ended) }); err != nil && !errors.Is(err, context.Canceled) {
		s.Errorf("Ack with a cancelled context: %v", err)
	}
	c.ackAll()
	s.within("the messages behind it", acks(msgs[1:]))
	s.finish(c, a)
	s.faultless(s.history.log().inOrder(backend.Strict))
}
