package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var visibilityCases = []testCase{
	{"VisibilityLapseDeliversAgain", visibilityLapse},
	{"VisibilityLapseRefusesTheOldDelivery", visibilityLapseRefuses},
	{"VisibilityLapseSpendsAnAttempt", visibilityLapseSpends},
	{"ExtendKeepsADelivery", extendKeeps},
	{"ExtendShortens", extendShortens},
}

const shortVisibility = 250 * time.Millisecond

func visibilityLapse(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry, VisibilityTimeout: shortVisibility})
	msgs := s.publish(p, messages(a, "key", 2)...)
	old := c.expect(msgs[0])
	old.ended()
	fresh := c.expect(msgs[0])
	if err := old.ack(); !errors.Is(err, backend.ErrLeaseLost) {
		s.Errorf("Ack of the lapsed delivery: %v, want ErrLeaseLost", err)
	}
	fresh.done()
	c.expect(msgs[1]).done()
	if got, want := s.history.log().attempts(msgs[0]), []int{1, 2}; !slices.Equal(got, want) {
		s.Errorf("attempts %v, want %v", got, want)
	}
	s.finish(c, a)
}

func visibilityLapseRefuses(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry, VisibilityTimeout: shortVisibility})
	for name, settle := range map[string]func(*delivery) error{
		"ack":      func(d *delivery) error { return d.ack() },
		"nack":     func(d *delivery) error { return d.nack(errTest) },
		"postpone": func(d *delivery) error { return d.postpone(never) },
		"reject":   func(d *delivery) error { return d.reject(errTest) },
		"extend":   func(d *delivery) error { defer d.leave(); return d.extend(time.Minute) },
	} {
		m := s.publish(p, message(a, name, "m"))[0]
		old := c.expect(m)
		old.ended()
		if err := settle(old); !errors.Is(err, backend.ErrLeaseLost) {
			s.Errorf("%s after the visibility timeout: %v, want ErrLeaseLost", name, err)
		}
		c.expect(m).done() // none of them changed anything
	}
	s.finish(c, a)
}

func visibilityLapseSpends(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.MaxAttempts = 2
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry, VisibilityTimeout: shortVisibility})
	msgs := s.publish(p, messages(a, "key", 2)...)
	for range retry.MaxAttempts {
		d := c.expect(msgs[0])
		d.ended()
		d.leave()
	}
	c.expect(msgs[1]).done()
	u := s.undertake(p)
	d := u.next()
	f, ok := d.Failure()
	if !ok || f.OriginalID != msgs[0].ID || f.Attempts != 2 || f.LastError == "" {
		s.Errorf("failure of a message nobody settled: %+v, %v", f, ok)
	}
	d.done()
	u.stop()
	s.finish(c, a)
}

// extendKeeps lets the delivery beside it lapse: by then the extended one would
// have, too.
func extendKeeps(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry, VisibilityTimeout: 2 * shortVisibility})
	m := s.publish(p, message(a, "extended", "m"))[0]
	extended := c.expect(m)
	extended.must(extended.extend(10 * shortVisibility))
	extended.must(extended.extend(10 * patience)) // from now, however long it had
	lapsing := s.publish(p, message(a, "lapsing", "m"))[0]
	d := c.expect(lapsing)
	d.ended()
	d.leave()
	d = c.expect(lapsing)
	if err := extended.Context().Err(); err != nil {
		s.Errorf("context of the extended delivery: %v", err)
	}
	d.done()
	extended.done()
	s.faultless(s.history.log().only(of(m)).attemptsIn(1))
	s.finish(c, a)
}

func extendShortens(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry, VisibilityTimeout: 10 * patience})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	d.must(d.extend(time.Millisecond))
	d.ended()
	d.leave()
	c.expect(m).done()
	s.finish(c, a)
}
