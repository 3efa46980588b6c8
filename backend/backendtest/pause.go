package backendtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var pauseCases = []testCase{
	{"PauseHoldsOneGroupOfOneTenant", pauseOneGroup},
	{"PauseSurvivesARestart", pauseSurvives},
	{"PauseOfNothing", pauseNothing},
}

// pauseWithin is how long another process may take to notice.
const pauseWithin = 2 * time.Second

func (s *stage) pause(p *process, t tenants.ID, group string) {
	s.Helper()
	for range 2 { // idempotent
		if err := p.Pause(s.ctx, t, topic, group); err != nil {
			s.Fatalf("Pause: %v", err)
		}
	}
	s.history.notef("paused")
}

func (s *stage) resume(p *process, t tenants.ID, group string) {
	s.Helper()
	for range 2 {
		if err := p.Resume(s.ctx, t, topic, group); err != nil {
			s.Fatalf("Resume: %v", err)
		}
	}
	s.history.notef("resumed")
}

// pauseOneGroup publishes to a tenant whose group is paused from another
// process, and sees another group and another tenant go on.
func pauseOneGroup(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p, operator := s.open(a, b), s.open()
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	beside := s.subscribe(p, backend.SubscriptionConfig{Group: "beside"}).ackAll()
	n := 0
	// publish sends one message to each tenant and waits for whoever is to get
	// it in any case.
	publish := func() []backend.Message {
		n++
		id := fmt.Sprintf("m%03d", n)
		msgs := s.publish(operator, message(a, "key", id), message(a, id, id), message(b, "key", id))
		s.within("the other group has all, the group has the other tenant's", every{acks(msgs, by(beside.name)), acks(msgs[2:], by(c.name))})
		return msgs
	}
	all := publish()
	s.within("all acked", acks(all, by(c.name)))

	s.pause(operator, a, group)
	for since := time.Now(); time.Since(since) < pauseWithin; {
		all = append(all, publish()...) // some of these may still be delivered
	}
	var held []backend.Message
	for range 5 {
		held = append(held, publish()...)
	}
	s.pass(p)
	for _, m := range held {
		if m.Tenant == a && s.history.log().has(by(c.name), of(m)) {
			s.Errorf("delivered, though paused for more than %v: %v", pauseWithin, identityOf(m))
		}
	}
	s.resume(operator, a, group)
	all = append(all, held...)
	s.within("all acked after Resume", acks(all, by(c.name)))
	l := s.history.log().only(by(c.name))
	s.faultless(l.exactlyOnce(all), l.inOrder(backend.Strict), l.attemptsIn(1))
	beside.stop()
	s.finish(c, a, b)
}

func pauseSurvives(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	d := c.expect(s.publish(p, message(a, "key", "m"))[0])
	s.pause(p, a, group)
	s.pass(p)
	d.done() // what is out may settle
	c.stop()
	held := s.publish(p, message(a, "key", "held"))[0]

	p = s.open(a, b)
	c = s.subscribe(p, backend.SubscriptionConfig{Group: group})
	c.expect(s.publish(p, message(b, "key", "m"))[0]).done()
	s.pass(p)
	c.nothing()
	s.resume(s.open(), a, group)
	c.expect(held).done()
	s.finish(c, a, b)
}

func pauseNothing(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	for name, err := range map[string]error{
		"Pause":     p.Pause(s.ctx, a, topic, group),
		"Resume":    p.Resume(s.ctx, a, topic, group),
		"DropGroup": p.DropGroup(s.ctx, a, topic, group),
	} {
		if !errors.Is(err, backend.ErrNotFound) {
			s.Errorf("%s of an unknown group: %v, want ErrNotFound", name, err)
		}
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	if err := p.Pause(s.ctx, s.tenant("b"), topic, group); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("Pause for another tenant: %v, want ErrNotFound", err)
	}
	s.resume(p, a, group) // of what is not paused
	s.finish(c, a)
}
