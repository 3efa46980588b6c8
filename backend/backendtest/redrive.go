package backendtest

import (
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var redriveCases = []testCase{
	{"RedriveReturnsToTheFailedGroupOnly", redriveOneGroup},
	{"RedriveGivesAllAttemptsAgain", redriveAttempts},
	{"RedriveBesideAMessageOfItsID", redriveBesideTwin},
	{"RedriveOfNothing", redriveNothing},
	{"RedriveOfMany", redriveMany},
}

// redrive names the dead letter as an operator who has read it.
func (s *stage) redrive(p *process, dead backend.Message) {
	s.Helper()
	ctx, cancel := s.timeout()
	defer cancel()
	if err := p.Redrive(ctx, dead.Tenant, dead.Topic, dead.PartitionKey, dead.ID); err != nil {
		s.Fatalf("Redrive of %v: %v", identityOf(dead), err)
	}
	s.history.notef("redriven: %v", identityOf(dead))
}

// deadLetters reads n dead letters and leaves them where they are.
func (s *stage) deadLetters(p *process, n int) []*delivery {
	s.Helper()
	cfg := backend.SubscriptionConfig{Group: "undertakers", Ordering: backend.Relaxed}
	u := s.subscribeTo(p, topic+backend.DefaultDeadLetterSuffix, cfg)
	var out []*delivery
	for range n {
		out = append(out, u.next())
	}
	_ = u.abort()
	for _, d := range out {
		d.leave()
	}
	return out
}

// bury ends what the undertakers still keep of dead letters that were taken
// from under them.
func (s *stage) bury(p *process, list ...tenants.ID) {
	s.Helper()
	cfg := backend.SubscriptionConfig{Group: "undertakers", LeaseDuration: quickLease}
	u := s.subscribeTo(p, topic+backend.DefaultDeadLetterSuffix, cfg)
	s.drained(list...)
	u.stop()
}

func redriveOneGroup(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	first := s.subscribe(p, backend.SubscriptionConfig{Group: "first"})
	second := s.subscribe(p, backend.SubscriptionConfig{Group: "second"})
	m := s.publish(p, message(a, "key", "m"))[0]
	for _, c := range []*consumer{first, second} {
		d := c.expect(m)
		d.must(d.reject(errTest))
	}
	third := s.subscribe(p, backend.SubscriptionConfig{Group: "third"})
	for _, dead := range s.deadLetters(p, 2) {
		f, _ := dead.Failure()
		s.redrive(s.open(), dead.Message())
		c := first
		if f.Group == "second" {
			c = second
		}
		d := c.expect(m)
		if _, ok := d.Failure(); ok {
			s.Error("a redriven message is still a dead letter")
		}
		d.done()
		// What comes next to anybody is not the redriven message.
		last := s.publish(p, message(a, "key", "behind "+f.Group))[0]
		for _, c := range []*consumer{first, second, third} {
			c.expect(last).done()
		}
	}
	for _, c := range []*consumer{first, second} {
		c.stop()
	}
	s.bury(p, a)
	s.finish(third, a)
}

func redriveAttempts(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.MaxAttempts = 2
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry})
	m := s.publish(p, message(a, "key", "m"))[0]
	for range 3 {
		for attempt := range 2 {
			d := c.expect(m)
			if d.Attempt() != attempt+1 {
				s.Errorf("attempt %d, want %d", d.Attempt(), attempt+1)
			}
			d.must(d.nack(errTest))
		}
		dead := s.deadLetters(p, 1)[0]
		f, _ := dead.Failure()
		if f.Group != group || f.Attempts != 2 || f.OriginalID != m.ID || f.OriginalTopic != m.Topic {
			s.Errorf("failure %+v", f)
		}
		s.redrive(p, dead.Message())
	}
	c.expect(m).done()
	s.bury(p, a)
	s.finish(c, a)
}

// redriveBesideTwin publishes the id anew before its dead letter comes back:
// the two have one id in one partition.
func redriveBesideTwin(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	d.must(d.reject(errTest))
	dead := s.deadLetters(p, 1)[0]
	s.eventually("the id is free again", func() bool {
		receipts, err := p.Publish(s.ctx, m)
		if err != nil {
			s.Fatal(err)
		}
		return !receipts[0].Duplicate
	})
	twin := c.expect(m)
	s.redrive(p, dead.Message())
	s.publish(p, message(a, "key", "last"))
	twin.done()
	c.expect(m).done()
	c.expect(message(a, "key", "last")).done()
	s.bury(p, a)
	s.finish(c, a)
}

func redriveNothing(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	m := s.publish(p, message(a, "key", "m"))[0]
	dead := topic + backend.DefaultDeadLetterSuffix
	if err := p.Redrive(s.ctx, a, dead, m.PartitionKey, m.ID); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("Redrive of what is no dead letter: %v, want ErrNotFound", err)
	}
	if err := p.Redrive(s.ctx, a, topic, m.PartitionKey, m.ID); err == nil {
		s.Error("Redrive of a message on its own topic: no error")
	}
	d := c.expect(m)
	d.must(d.reject(errTest))
	letter := s.deadLetters(p, 1)[0].Message()
	if err := p.Redrive(s.ctx, s.tenant("b"), dead, letter.PartitionKey, letter.ID); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("Redrive for another tenant: %v, want ErrNotFound", err)
	}
	s.redrive(p, letter)
	if err := p.Redrive(s.ctx, a, dead, letter.PartitionKey, letter.ID); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("second Redrive: %v, want ErrNotFound", err)
	}
	c.expect(m).done()
	s.bury(p, a)
	s.finish(c, a)
}

func redriveMany(s *stage) {
	const partitions = 20
	a := s.tenant("a")
	p := s.open(a)
	dead := make(map[string]bool)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	var msgs []backend.Message
	for i := range partitions {
		msgs = append(msgs, message(a, fmt.Sprintf("key%d", i), "m"))
	}
	msgs = s.publish(p, msgs...)
	for range msgs {
		d := c.next()
		d.must(d.reject(errTest))
	}
	for _, d := range s.deadLetters(p, partitions) {
		s.redrive(p, d.Message())
		dead[d.Message().PartitionKey] = true
	}
	if len(dead) != partitions {
		s.Errorf("dead letters of %d partitions, want %d", len(dead), partitions)
	}
	for range msgs {
		c.next().done()
	}
	s.faultless(s.history.log().exactlyOnce(msgs), s.history.log().attemptsIn(1))
	s.bury(p, a)
	s.finish(c, a)
}
