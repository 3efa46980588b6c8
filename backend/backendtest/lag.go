package backendtest

import (
	"errors"
	"strings"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var lagCases = []testCase{
	{"LagCountsWhatTheGroupHasNotSettled", lagCounts},
	{"LagOfAGroupThatBeginsAtTheLatest", lagLatest},
	{"LagLeavesOutWhatIsForAnotherGroup", lagRedriven},
	{"LagOfNothing", lagNothing},
}

// lag reads the lag of a group on the case's topic.
func (s *stage) lag(p *process, t tenants.ID, group string) backend.Lag {
	s.Helper()
	ctx, cancel := s.timeout()
	defer cancel()
	lag, err := p.Lag(ctx, t, topic, group)
	if err != nil {
		s.Fatalf("Lag: %v", err)
	}
	if lag.AtLeast || lag.Messages == 0 && lag.Oldest != 0 || lag.Oldest < 0 || lag.Oldest > patience {
		s.Errorf("lag of %s: %+v", group, lag)
	}
	return lag
}

// behind wants a group to be n messages behind.
func (s *stage) behind(p *process, t tenants.ID, group string, n int) {
	s.Helper()
	if lag := s.lag(p, t, group); lag.Messages != n {
		s.Errorf("%s is %d messages behind, want %d", group, lag.Messages, n)
	}
}

func lagCounts(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	s.subscribe(p, backend.SubscriptionConfig{Group: "away"}).stop() // messages stay for it
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: "group", Ordering: backend.Relaxed, Retry: backend.RetryPolicy{InitialBackoff: never, MaxBackoff: never},
	})
	s.behind(p, a, "group", 0)
	msgs := s.publish(p, append(messages(a, "short", 3), messages(a, "long", 5)...)...)
	s.publish(p, message(b, "short", "another tenant's"))
	out := make(map[string]*delivery)
	for range len(msgs) + 1 {
		d := c.next()
		out[d.Message().ID] = d
	}
	s.behind(p, a, "group", 8) // in flight
	s.eventually("the oldest has an age", func() bool { return s.lag(p, a, "group").Oldest > 0 })

	out["long-003"].done() // ahead of the watermark
	s.behind(p, a, "group", 7)
	for _, d := range []string{"short-001", "short-002", "short-003"} {
		out[d].done()
	}
	s.behind(p, a, "group", 4)
	d := out["long-001"]
	d.must(d.nack(errTest))
	s.behind(p, a, "group", 4) // waits for its next attempt
	for _, d := range []string{"long-002", "long-004", "long-005"} {
		out[d].done()
	}
	s.behind(p, a, "group", 1)
	s.behind(p, a, "away", 8)
	s.behind(p, b, "group", 1)
	out["another tenant's"].done()
	s.behind(p, b, "group", 0)
	c.stop()
	s.behind(s.open(), a, "group", 1) // whoever asks
}

func lagLatest(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	s.subscribe(p, backend.SubscriptionConfig{Group: "early"}).stop()
	s.publish(p, messages(a, "key", 3)...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: "late", Start: backend.Latest})
	s.behind(p, a, "late", 0)
	s.behind(p, a, "early", 3)
	later := s.publish(p, message(a, "key", "later"), message(a, "new key", "later"))
	s.behind(p, a, "late", 2)
	for range later {
		c.next().done()
	}
	s.behind(p, a, "late", 0)
	s.behind(p, a, "early", 5)
	c.stop()
}

func lagRedriven(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	first := s.subscribe(p, backend.SubscriptionConfig{Group: "first"})
	second := s.subscribe(p, backend.SubscriptionConfig{Group: "second"})
	m := s.publish(p, message(a, "key", "m"))[0]
	second.expect(m).done()
	second.stop()
	d := first.expect(m)
	d.must(d.reject(errTest))
	s.behind(p, a, "first", 0)
	s.redrive(p, s.deadLetters(p, 1)[0].Message())
	s.behind(p, a, "first", 1)
	s.behind(p, a, "second", 0)
	first.expect(m).done()
	s.behind(p, a, "first", 0)
	first.stop()
}

func lagNothing(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	s.publish(p, message(a, "key", "m"))
	if _, err := p.Lag(s.ctx, a, topic, "nobody"); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("lag of an unknown group: %v, want ErrNotFound", err)
	}
	for _, c := range []struct {
		tenant       tenants.ID
		topic, group string
	}{{"", topic, group}, {a, "", group}, {a, topic, strings.Repeat("g", backend.MaxIdentLength+1)}} {
		if _, err := p.Lag(s.ctx, c.tenant, c.topic, c.group); !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("lag of tenant %q, topic %q, group of %d bytes: %v, want ErrInvalid", c.tenant, c.topic, len(c.group), err)
		}
	}
	p.close()
	if _, err := p.Lag(s.ctx, a, topic, group); !errors.Is(err, backend.ErrClosed) {
		s.Errorf("lag of a closed queue: %v, want ErrClosed", err)
	}
}
