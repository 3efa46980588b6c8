package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var crashCases = []testCase{
	{"CrashedSubscriberIsReplaced", crashReplaced},
	{"CrashChargesOnlyWhatWasBegun", crashCharges},
	{"StrictPoisonCostsNoInnocent", func(s *stage) { poison(s, backend.Strict) }},
	{"RelaxedPoisonCostsNoInnocent", func(s *stage) { poison(s, backend.Relaxed) }},
	{"StaleOwnerCannotSettle", staleOwner},
	{"OutageIsSurvived", outage},
	{"HeartbeatsOfTheDeadArePurged", deadHeartbeats},
}

// quickLease is short enough to wait for, and long enough for a busy machine
// to renew in time.
const quickLease = time.Second

// quick is for cases in which a lease has to run out.
func quick(ordering backend.Ordering) backend.SubscriptionConfig {
	return backend.SubscriptionConfig{
		Group: group, Ordering: ordering, LeaseDuration: quickLease, PollInterval: 20 * time.Millisecond, Retry: quickRetry,
	}
}

func crashReplaced(s *stage) {
	const partitions, each = 6, 5
	a, b := s.tenant("a"), s.tenant("b")
	p, other := s.open(a, b), s.open(a, b)
	var msgs []backend.Message
	for k := range partitions {
		msgs = append(msgs, messages([]tenants.ID{a, b}[k%2], fmt.Sprintf("key%d", k), each)...)
	}
	msgs = s.publish(p, msgs...)
	c := s.subscribe(p, quick(backend.Strict))
	var settled, begun []backend.Message
	for range partitions {
		d := c.next()
		d.done()
		settled = append(settled, d.Message())
	}
	for range partitions - 2 { // one partition may have been settled already
		begun = append(begun, c.next().Message())
	}
	p.crash()

	d := s.subscribe(other, quick(backend.Strict)).ackAll()
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.only(by(d.name)).inOrder(backend.Strict), l.oneAtATime())
	for _, m := range settled {
		if got := l.attempts(m); len(got) != 1 {
			s.Errorf("%v was settled before the crash and has attempts %v", identityOf(m), got)
		}
	}
	for _, m := range begun {
		if got := l.only(by(d.name)).attempts(m); len(got) != 1 || got[0] != 2 {
			s.Errorf("%v had begun before the crash and has attempts %v after, want [2]", identityOf(m), got)
		}
	}
	s.drained(a, b)
}

// crashCharges has processes crash over one message after the other. Each has
// one crash to spare, and loses it to its own only.
func crashCharges(s *stage) {
	a := s.tenant("a")
	msgs := s.publish(s.open(), messages(a, "key", 6)...)
	cfg := quick(backend.Strict)
	cfg.Retry.MaxAttempts = 2
	for _, m := range msgs[:3] {
		p := s.open(a)
		s.subscribe(p, cfg).expect(m)
		p.crash()
		p = s.open(a)
		c := s.subscribe(p, cfg)
		c.expect(m).done()
		c.stop()
	}
	c := s.subscribe(s.open(a), cfg)
	for _, m := range msgs[3:] {
		c.expect(m).done()
	}
	s.drained(a) // the heartbeats of the dead go in their time
	c.stop()
}

// poison crashes every process that begins it. The handlers take one delivery
// at a time, so that whoever is charged beside it is innocent.
func poison(s *stage, ordering backend.Ordering) {
	a := s.tenant("a")
	var msgs []backend.Message
	for k := range 4 {
		msgs = append(msgs, messages(a, fmt.Sprintf("key%d", k), 10)...)
	}
	msgs = s.publish(s.open(), msgs...)
	poisoned := msgs[14] // the fifth of its partition
	innocents := append(msgs[:14:14], msgs[15:]...)
	cfg := quick(ordering)
	cfg.Retry.MaxAttempts = 2

	u := s.undertake(s.open(a)).serve(func(d *delivery) {
		if f, _ := d.Failure(); f.OriginalID != poisoned.ID || f.Attempts < cfg.Retry.MaxAttempts {
			s.Errorf("dead letter %v: %+v, want the poison only", identityOf(d.Message()), f)
		}
		d.done()
	})
	buried := func() condition { return every{count(1, by(u.name), is(acked)), acks(innocents)} }

	for crashes := 0; ; crashes++ {
		p := s.open(a)
		c := s.subscribe(p, cfg)
		if !s.comesTo(c, poisoned, buried()) {
			if crashes == 0 {
				s.Error("the poison was never delivered")
			}
			c.stop()
			break
		}
		p.crash()
		if crashes > 2*cfg.Retry.MaxAttempts {
			s.Fatalf("the poison is delivered after %d crashes, with %d attempts allowed", crashes, cfg.Retry.MaxAttempts)
		}
	}
	s.faultless(s.history.log().only(onTopic(topic)).exactlyOnce(innocents))
	s.drained(a) // no other dead letter
	u.stop()
}

// comesTo acks one delivery after the other until it comes to m, or else to
// the end.
func (s *stage) comesTo(c *consumer, m backend.Message, end condition) bool {
	s.Helper()
	ctx, cancel := s.timeout()
	defer cancel()
	over := make(chan struct{})
	go func() {
		if s.history.wait(ctx, end) == nil {
			close(over)
		}
	}()
	for {
		select {
		case d := <-c.sub.Deliveries():
			taken := c.take(d)
			if identityOf(d.Message()) == identityOf(m) {
				return true
			}
			taken.done()
		case <-over:
			return false
		case <-ctx.Done():
			s.Fatalf("%s: neither %v nor the end within %v", c.name, identityOf(m), patience)
		}
	}
}

// staleOwner cuts a subscriber off long enough for another to take over, and
// lets it come back.
func staleOwner(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open(a)
	settle := []func(*delivery) error{
		func(d *delivery) error { return d.ack() },
		func(d *delivery) error { return d.nack(errTest) },
		func(d *delivery) error { return d.postpone(never) },
		func(d *delivery) error { return d.reject(errTest) },
		func(d *delivery) error { defer d.leave(); return d.extend(time.Minute) },
	}
	var msgs []backend.Message
	for i := range settle {
		msgs = append(msgs, messages(a, fmt.Sprintf("key%d", i), 2)...)
	}
	msgs = s.publish(p, msgs...)
	c := s.subscribe(p, quick(backend.Strict))
	var stale []*delivery
	for range settle {
		stale = append(stale, c.next())
	}
	mend := p.cut()
	d := s.subscribe(other, quick(backend.Strict))
	var fresh []*delivery
	for range settle {
		fresh = append(fresh, d.next())
	}
	mend()
	for i, old := range stale {
		if err := settle[i](old); !errors.Is(err, backend.ErrLeaseLost) {
			s.Errorf("settlement %d by the stale owner: %v, want ErrLeaseLost", i, err)
		}
		old.ended()
	}
	for _, f := range fresh {
		if f.Attempt() != 2 {
			s.Errorf("attempt %d after the takeover, want 2", f.Attempt())
		}
		f.done()
	}
	// Both go on, each with its share.
	c.ackAll()
	d.ackAll()
	s.within("all acked", acks(msgs))
	s.faultless(s.history.log().exactlyOnce(msgs))
	c.stop()
	s.finish(d, a)
}

// outage takes the storage away while deliveries are out, and gives it back
// while they are being acked. Then an ack may come too late, and its message
// again; none is lost, and the subscription goes on.
func outage(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open()
	var mu sync.Mutex
	hold := make(chan struct{}) // until the storage is gone
	s.subscribe(p, quick(backend.Strict)).handle(func(d *delivery) {
		mu.Lock()
		held := hold
		mu.Unlock()
		select {
		case <-held:
			_ = d.ack()
		case <-d.Context().Done():
		}
	})
	var msgs []backend.Message
	for round := range 3 {
		id := func(n int) string { return fmt.Sprintf("m%d-%d", round, n) }
		msgs = append(msgs, s.publish(other, message(a, "key", id(0)), message(a, fmt.Sprintf("key%d", round), id(0)))...)
		s.within("deliveries are out", count(2, is(delivered), func(e event) bool { return e.msg.ID == id(0) }))
		mend := p.cut()
		unreachable := message(a, "unreachable", id(0))
		s.expect(unreachable) // if it is stored after all
		ctx, cancel := context.WithTimeout(s.ctx, quickLease/10)
		if _, err := p.Publish(ctx, unreachable); err == nil {
			s.Error("Publish without storage: no error")
		}
		cancel()
		msgs = append(msgs, s.publish(other, message(a, "key", id(1)))...)
		close(hold)
		mend()
		s.within("all acked", acks(msgs))
		mu.Lock()
		hold = make(chan struct{})
		mu.Unlock()
	}
	close(hold)
	s.faultless(s.history.log().inOrder(backend.Strict))
	s.drained(a)
}

func deadHeartbeats(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	s.publish(s.open(), message(a, "key", "m"), message(b, "key", "m"))
	cfg := quick(backend.Strict)
	for range 3 {
		p := s.open(a, b)
		c := s.subscribe(p, cfg)
		c.next()
		c.next()
		s.eventually("a heartbeat for each tenant", func() bool { return s.store.Rows(s.T, a, b)[Heartbeats] > 1 })
		p.crash()
	}
	// A subscriber has heartbeats while it has work.
	c := s.subscribe(s.open(a, b), cfg)
	out := []*delivery{c.next(), c.next()}
	s.eventually("heartbeats of the living only", func() bool { return s.store.Rows(s.T, a, b)[Heartbeats] == 2 })
	s.each(out, (*delivery).done)
	s.finish(c, a, b)
}
