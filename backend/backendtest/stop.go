package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var stopCases = []testCase{
	{"StopLetsWhatIsOutSettle", stopSettles},
	{"StopReturnsWhatNobodyTook", stopReturns},
	{"StopTwice", stopTwice},
	{"StopWithEndedContextCutsOff", stopCutsOff},
	{"StopSpendsNoAttempt", stopSpends},
	{"SubscribeContextBoundsTheCallOnly", subscribeContext},
}

func stopSettles(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	var msgs []backend.Message
	for k := range 4 {
		msgs = append(msgs, messages(a, fmt.Sprintf("key%d", k), 2)...)
	}
	s.publish(p, msgs...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry})
	var out []*delivery
	for range 4 {
		out = append(out, c.next())
	}
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := s.timeout()
		defer cancel()
		stopped <- c.sub.Stop(ctx)
	}()
	running := func() {
		s.Helper()
		s.pass(p)
		select {
		case err := <-stopped:
			s.Fatalf("Stop returned %v with deliveries out", err)
		default:
		}
	}
	out[0].done()
	running()
	out[1].must(out[1].nack(errTest))
	running()
	out[2].must(out[2].postpone(time.Millisecond))
	running()
	if err := out[3].Context().Err(); err != nil {
		s.Errorf("context of a delivery during Stop: %v", err)
	}
	out[3].must(out[3].reject(errTest))
	if err := <-stopped; err != nil {
		s.Errorf("Stop: %v", err)
	}
	for d := range c.sub.Deliveries() {
		s.Errorf("delivered after Stop: %v", identityOf(d.Message()))
	}

	c = s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group}).ackAll()
	var rest []backend.Message
	for _, m := range msgs {
		if id := identityOf(m); id != identityOf(out[0].Message()) && id != identityOf(out[3].Message()) {
			rest = append(rest, m)
		}
	}
	s.within("the rest is acked", acks(rest, by(c.name)))
	s.faultless(s.history.log().only(by(c.name)).exactlyOnce(rest))
	c.stop()
}

func stopReturns(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	var msgs []backend.Message
	for k := range 50 {
		msgs = append(msgs, messages(a, fmt.Sprintf("key%d", k), 2)...)
	}
	s.publish(p, msgs...)
	for _, ordering := range []backend.Ordering{backend.Strict, backend.Relaxed, backend.Strict} {
		c := s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group, Ordering: ordering})
		for range 5 {
			c.next().done()
		}
		c.stop() // with many fetched that nobody took
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.attemptsIn(1), l.inOrder(backend.Strict))
	s.finish(c, a)
}

func stopTwice(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	d := c.expect(s.publish(p, message(a, "key", "m"))[0])
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			ctx, cancel := s.timeout()
			defer cancel()
			if err := c.sub.Stop(ctx); err != nil {
				s.Errorf("Stop beside others: %v", err)
			}
		})
	}
	d.done()
	wg.Wait()
	s.finish(c, a) // stops once more
}

func stopCutsOff(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	var out []*delivery
	for k := range 10 { // three of them on offer, or soon to be
		s.publish(p, messages(a, fmt.Sprintf("key%d", k), 2)...)
		if k < 7 {
			out = append(out, c.next())
		}
	}
	s.pass(p)
	err := c.abort()
	if err == nil || !strings.Contains(err.Error(), "7") {
		s.Errorf("Stop with 7 deliveries out: %v, want an error that counts them", err)
	}
	for d := range c.sub.Deliveries() {
		s.Errorf("delivered after Stop: %v", identityOf(d.Message()))
	}
	for _, d := range out {
		d.ended()
		if context.Cause(d.Context()) == nil {
			s.Error("no cause in the context of a delivery cut off")
		}
		if err := d.ack(); !errors.Is(err, backend.ErrLeaseLost) && !errors.Is(err, backend.ErrClosed) {
			s.Errorf("Ack after the cut-off: %v, want ErrLeaseLost or ErrClosed", err)
		}
	}
	// Nothing is lost, and the leases are free.
	c = s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group})
	for range 20 {
		c.next().done()
	}
	s.faultless(s.history.log().inOrder(backend.Strict))
	s.finish(c, a)
}

// stopSpends interrupts a message more often than it has attempts.
func stopSpends(s *stage) {
	a := s.tenant("a")
	retry := quickRetry
	retry.MaxAttempts = 2
	cfg := backend.SubscriptionConfig{Group: group, Retry: retry}
	m := s.publish(s.open(), message(a, "key", "m"))[0]
	interrupt := func(times int) {
		for range times {
			c := s.subscribe(s.open(a), cfg)
			d := c.expect(m)
			_ = c.abort()
			d.leave()
		}
	}
	interrupt(3)
	c := s.subscribe(s.open(a), cfg)
	d := c.expect(m)
	d.must(d.nack(errTest))
	c.stop()
	interrupt(3)
	c = s.subscribe(s.open(a), cfg)
	c.expect(m).done()
	if got, want := s.history.log().attempts(m), []int{1, 1, 1, 1, 2, 2, 2, 2}; !slices.Equal(got, want) {
		s.Errorf("attempts %v, want %v", got, want)
	}
	s.finish(c, a)
}

func subscribeContext(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	ctx, cancel := context.WithCancel(s.ctx)
	sub, err := p.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: group})
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	c := s.adopt(p, group, sub)
	c.expect(s.publish(p, message(a, "key", "m"))[0]).done()
	s.finish(c, a)
	if _, err := p.Subscribe(ctx, topic, backend.SubscriptionConfig{Group: group}); !errors.Is(err, context.Canceled) {
		s.Errorf("Subscribe with a cancelled context: %v", err)
	}
}
