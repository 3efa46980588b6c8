package backendtest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
)

var closeCases = []testCase{
	{"CloseStopsEverything", closeStops},
	{"CloseWaitsForWhatIsOut", closeWaits},
	{"CloseLetsHandlersPublish", closeLetsPublish},
	{"CloseWithEndedContextCutsOff", closeCutsOff},
	{"CloseOfWhatWasNeverUsed", closeUnused},
	{"CloseBesidePublishing", closeBesidePublishing},
}

func closeStops(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	other := s.subscribe(p, backend.SubscriptionConfig{Group: "other"})
	for range 2 {
		if err := p.Close(s.ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
	for _, c := range []*consumer{c, other} {
		if _, ok := <-c.sub.Deliveries(); ok {
			s.Error("delivered after Close")
		}
		if err := c.sub.Stop(s.ctx); err != nil {
			s.Errorf("Stop after Close: %v", err)
		}
	}
	s.gone(a) // not even heartbeats

	m := message(a, "key", "m")
	_, published := p.Publish(s.ctx, m)
	_, subscribed := p.Subscribe(s.ctx, topic, backend.SubscriptionConfig{Group: group})
	for name, err := range map[string]error{
		"Publish":   published,
		"Subscribe": subscribed,
		"Pause":     p.Pause(s.ctx, a, topic, group),
		"Resume":    p.Resume(s.ctx, a, topic, group),
		"Redrive":   p.Redrive(s.ctx, a, topic, "key", "m"),
		"DropGroup": p.DropGroup(s.ctx, a, topic, group),
	} {
		if !errors.Is(err, backend.ErrClosed) {
			s.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	if tx, ok := s.begin(); ok {
		if _, err := p.PublishTx(s.ctx, tx, m); !errors.Is(err, backend.ErrClosed) {
			s.Errorf("PublishTx after Close: %v, want ErrClosed", err)
		}
	}
}

func closeWaits(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	msgs := s.publish(p, messages(a, "key", 2)...)
	d := c.expect(msgs[0])
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := s.timeout()
		defer cancel()
		closed <- p.Close(ctx)
	}()
	s.pass(s.open(a))
	select {
	case err := <-closed:
		s.Fatalf("Close returned %v with a delivery out", err)
	default:
	}
	if err := d.Context().Err(); err != nil {
		s.Errorf("context of a delivery during Close: %v", err)
	}
	d.done()
	if err := <-closed; err != nil {
		s.Errorf("Close: %v", err)
	}
	c = s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group})
	c.expect(msgs[1]).done()
	s.faultless(s.history.log().attemptsIn(1))
	s.finish(c, a)
}

// closeLetsPublish publishes from a handler that Close waits for: it could not
// finish its work otherwise.
func closeLetsPublish(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	d := c.expect(s.publish(p, message(a, "key", "m"))[0])
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := s.timeout()
		defer cancel()
		closed <- p.Close(ctx)
	}()
	s.eventually("no new subscriptions: Close has begun", func() bool {
		sub, err := p.Subscribe(s.ctx, "probe", backend.SubscriptionConfig{Group: group})
		if err != nil {
			return errors.Is(err, backend.ErrClosed)
		}
		if err := sub.Stop(s.ctx); err != nil {
			s.Errorf("Stop: %v", err)
		}
		return false
	})
	follow := s.publish(p, message(a, "key", "published by the handler"))[0]
	d.done()
	if err := <-closed; err != nil {
		s.Errorf("Close: %v", err)
	}
	c = s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group})
	c.expect(follow).done()
	s.finish(c, a)
}

func closeCutsOff(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed})
	s.publish(p, messages(a, "key", 8)...)
	for range 8 {
		c.next()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := p.Close(ctx); err == nil || !strings.Contains(err.Error(), "8") {
		s.Errorf("Close with 8 deliveries out: %v, want an error that counts them", err)
	}
}

func closeUnused(s *stage) {
	for _, p := range []*process{s.open(), s.open(s.tenant("a"))} {
		if err := p.Close(s.ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
}

// closeBesidePublishing wants every Publish either done or refused.
func closeBesidePublishing(s *stage) {
	a := s.tenant("a")
	p := s.open()
	var mu sync.Mutex
	var stored []backend.Message
	var wg sync.WaitGroup
	begun := make(chan struct{}, 8)
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				m := messages(a, string(rune('a'+i)), n+1)[n]
				s.expect(m)
				_, err := p.Publish(s.ctx, m)
				if errors.Is(err, backend.ErrClosed) {
					return
				}
				if err != nil {
					s.Errorf("Publish beside Close: %v", err)
					return
				}
				mu.Lock()
				stored = append(stored, m)
				mu.Unlock()
				if n == 5 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	if err := p.Close(s.ctx); err != nil {
		s.Errorf("Close: %v", err)
	}
	wg.Wait()
	c := s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed}).ackAll()
	s.within("all that was stored is acked", acks(stored))
	s.finish(c, a)
}
