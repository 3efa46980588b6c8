package backendtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// consumer is one subscription, with everything it hands out on record. A
// case either takes deliveries one by one with next, or gives a handler to
// each.
type consumer struct {
	s       *stage
	process *process
	name    string
	sub     backend.Subscription

	collecting sync.WaitGroup // the collector and its handlers

	mu      sync.Mutex
	out     int
	aborted bool
}

// subscribe starts a consumer on the case's topic.
func (s *stage) subscribe(p *process, cfg backend.SubscriptionConfig) *consumer {
	s.Helper()
	return s.subscribeTo(p, topic, cfg)
}

// subscribeTo starts a consumer on any topic.
func (s *stage) subscribeTo(p *process, topic string, cfg backend.SubscriptionConfig) *consumer {
	s.Helper()
	ctx, cancel := s.timeout()
	defer cancel()
	sub, err := p.Subscribe(ctx, topic, cfg)
	if err != nil {
		s.Fatalf("Subscribe(%q): %v", topic, err)
	}
	return s.adopt(p, cfg.Group, sub)
}

// adopt makes a consumer of a subscription.
func (s *stage) adopt(p *process, group string, sub backend.Subscription) *consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &consumer{s: s, process: p, name: fmt.Sprintf("%s%d", short(group), len(s.consumers)+1), sub: sub}
	s.consumers = append(s.consumers, c)
	return c
}

// next waits for a delivery.
func (c *consumer) next() *delivery {
	c.s.Helper()
	select {
	case d, ok := <-c.sub.Deliveries():
		if !ok {
			c.s.Fatalf("%s: deliveries closed, want one", c.name)
		}
		return c.take(d)
	case <-time.After(patience):
		c.s.Fatalf("%s: no delivery within %v", c.name, patience)
		return nil
	}
}

// expect waits for a delivery of m.
func (c *consumer) expect(m backend.Message) *delivery {
	c.s.Helper()
	d := c.next()
	if identityOf(d.Message()) != identityOf(m) {
		c.s.Fatalf("%s: delivered %v, want %v", c.name, identityOf(d.Message()), identityOf(m))
	}
	return d
}

// nothing wants no delivery on offer. It is no proof by itself: a case first
// lets pass what would have brought one.
func (c *consumer) nothing() {
	c.s.Helper()
	select {
	case d, ok := <-c.sub.Deliveries():
		if ok {
			c.take(d)
		}
		c.s.Fatalf("%s: delivered, though nothing was due (channel open: %v)", c.name, ok)
	default:
	}
}

// take puts a delivery on record.
func (c *consumer) take(d backend.Delivery) *delivery {
	c.mu.Lock()
	c.out++
	c.mu.Unlock()
	e := event{verb: delivered, consumer: c.name, attempt: d.Attempt(), msg: d.Message()}
	e.msg.Payload = nil
	e.delivery = c.s.history.add(e)
	c.s.inspect(d)
	return &delivery{Delivery: d, c: c, event: e}
}

// unsettled tells whether deliveries are out, or were when it was stopped.
func (c *consumer) unsettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out > 0 || c.aborted
}

// handle gives every delivery to h, each in a goroutine of its own. It returns
// the consumer for chaining.
func (c *consumer) handle(h func(*delivery)) *consumer {
	c.collecting.Go(func() {
		for d := range c.sub.Deliveries() {
			taken := c.take(d)
			c.collecting.Go(func() { h(taken) })
		}
	})
	return c
}

// serve gives every delivery to h, one after the other.
func (c *consumer) serve(h func(*delivery)) *consumer {
	c.collecting.Go(func() {
		for d := range c.sub.Deliveries() {
			h(c.take(d))
		}
	})
	return c
}

// ackAll acks whatever comes.
func (c *consumer) ackAll() *consumer {
	return c.handle((*delivery).done)
}

// stop ends the subscription with all that it had out settled.
func (c *consumer) stop() {
	c.s.Helper()
	ctx, cancel := c.s.timeout()
	defer cancel()
	if err := c.sub.Stop(ctx); err != nil {
		c.s.Fatalf("%s: Stop: %v", c.name, err)
	}
	c.collecting.Wait()
}

// abort ends the subscription at once, whatever is out.
func (c *consumer) abort() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := c.sub.Stop(ctx)
	c.mu.Lock()
	c.aborted = true
	c.mu.Unlock()
	c.s.history.add(event{verb: crashed, consumer: c.name, note: "stopped at once", err: err})
	return err
}

// each settles deliveries side by side, as handlers do.
func (s *stage) each(out []*delivery, settle func(*delivery)) {
	var wg sync.WaitGroup
	for _, d := range out {
		wg.Go(func() { settle(d) })
	}
	wg.Wait()
}

// delivery is one attempt on record.
type delivery struct {
	backend.Delivery
	c     *consumer
	event event

	once sync.Once // of leaving the consumer's count
}

func (d *delivery) record(v verb, err error, note string) {
	e := d.event
	e.verb, e.err, e.note = v, err, note
	d.c.s.history.add(e)
}

func (d *delivery) settle(v verb, call func(context.Context) error) error {
	d.record(settling, nil, string(v))
	ctx, cancel := d.c.s.timeout()
	defer cancel()
	err := call(ctx)
	d.record(v, err, "")
	d.leave()
	return err
}

// leave takes the delivery off the consumer's count.
func (d *delivery) leave() {
	d.once.Do(func() {
		d.c.mu.Lock()
		d.c.out--
		d.c.mu.Unlock()
	})
}

func (d *delivery) ack() error {
	return d.settle(acked, d.Ack)
}

func (d *delivery) nack(cause error) error {
	return d.settle(nacked, func(ctx context.Context) error { return d.Nack(ctx, cause) })
}

func (d *delivery) postpone(delay time.Duration) error {
	return d.settle(postponed, func(ctx context.Context) error { return d.Postpone(ctx, delay) })
}

func (d *delivery) reject(cause error) error {
	return d.settle(rejected, func(ctx context.Context) error { return d.Reject(ctx, cause) })
}

func (d *delivery) extend(delay time.Duration) error {
	ctx, cancel := d.c.s.timeout()
	defer cancel()
	err := d.Extend(ctx, delay)
	d.record(extended, err, delay.String())
	return err
}

// done acks and wants it to succeed.
func (d *delivery) done() {
	d.must(d.ack())
}

// must wants the settlement to have succeeded.
func (d *delivery) must(err error) {
	d.c.s.Helper()
	if err != nil {
		d.c.s.Errorf("settle %v, attempt %d: %v", identityOf(d.event.msg), d.event.attempt, err)
	}
}

// ended waits for the delivery's context to end.
func (d *delivery) ended() {
	d.c.s.Helper()
	select {
	case <-d.Context().Done():
	case <-time.After(patience):
		d.c.s.Fatalf("context of %v still alive after %v", identityOf(d.event.msg), patience)
	}
}
