package consume_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is the other side of the interface: a subscriber whose deliveries and
// answers a test writes itself.
type script struct {
	subscribing func(ctx context.Context, topic string) error // nil accepts
	stopping    func(ctx context.Context, topic string) error // nil drains as the contract says

	mu   sync.Mutex
	subs map[string]*subscription
}

func (s *script) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	if s.subscribing != nil {
		if err := s.subscribing(ctx, topic); err != nil {
			return nil, err
		}
	}
	return s.topic(topic, func(sub *subscription) { sub.config = cfg }), nil
}

// topic returns the subscription of a topic, which deliveries may be put into
// before anyone has subscribed.
func (s *script) topic(name string, change func(*subscription)) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[name] == nil {
		if s.subs == nil {
			s.subs = make(map[string]*subscription)
		}
		s.subs[name] = &subscription{topic: name, script: s, out: make(chan backend.Delivery, 100)}
	}
	change(s.subs[name])
	return s.subs[name]
}

// deliver hands out a message of topic, after the changes to its delivery.
func (s *script) deliver(topic string, m backend.Message, changes ...func(*delivery)) *delivery {
	m.Topic = topic
	d := &delivery{message: m, settled: make(chan settlement, 10)}
	d.ctx, d.end = context.WithCancelCause(context.Background())
	for _, change := range changes {
		change(d)
	}
	s.topic(topic, func(sub *subscription) {
		sub.given = append(sub.given, d)
		sub.out <- d
	})
	return d
}

func (s *script) stopped(topic string) (stopped bool) {
	s.topic(topic, func(sub *subscription) { stopped = sub.closed })
	return stopped
}

type subscription struct {
	topic  string
	script *script
	config backend.SubscriptionConfig
	out    chan backend.Delivery
	closed bool
	given  []*delivery
}

func (s *subscription) Deliveries() <-chan backend.Delivery { return s.out }

func (s *subscription) Stop(ctx context.Context) error {
	if s.script.stopping != nil {
		return s.script.stopping(ctx, s.topic)
	}
	return s.drain(ctx)
}

// drain does what backend.Subscription promises.
func (s *subscription) drain(ctx context.Context) error {
	s.script.mu.Lock()
	given := s.given
	if !s.closed {
		s.closed = true
		close(s.out)
	}
	s.script.mu.Unlock()
	cut := 0
	for _, d := range given {
		select {
		case <-d.ctx.Done():
		case <-ctx.Done():
			cut++
			d.end(backend.ErrClosed)
		}
	}
	if cut > 0 {
		return fmt.Errorf("%d deliveries cut off: %w", cut, ctx.Err())
	}
	return nil
}

// settlement is what a delivery was told.
type settlement struct {
	verb  string
	cause error
	delay time.Duration
}

type delivery struct {
	message backend.Message
	ctx     context.Context
	end     context.CancelCauseFunc
	settled chan settlement

	settling func(context.Context) error                // nil writes at once
	extend   func(context.Context, time.Duration) error // nil accepts
	failure  *backend.Failure
}

var errDone = errors.New("settled")

func (d *delivery) settle(ctx context.Context, s settlement) error {
	if d.settling != nil {
		if err := d.settling(ctx); err != nil {
			return err
		}
	}
	d.settled <- s
	d.end(errDone)
	return nil
}

func (d *delivery) Message() backend.Message      { return d.message }
func (d *delivery) Attempt() int                  { return 3 }
func (d *delivery) Context() context.Context      { return d.ctx }
func (d *delivery) Ack(ctx context.Context) error { return d.settle(ctx, settlement{verb: "ack"}) }
func (d *delivery) Nack(ctx context.Context, cause error) error {
	return d.settle(ctx, settlement{verb: "nack", cause: cause})
}

func (d *delivery) Postpone(ctx context.Context, delay time.Duration) error {
	return d.settle(ctx, settlement{verb: "postpone", delay: delay})
}

func (d *delivery) Reject(ctx context.Context, cause error) error {
	return d.settle(ctx, settlement{verb: "reject", cause: cause})
}

func (d *delivery) Extend(ctx context.Context, timeout time.Duration) error {
	if d.extend == nil {
		return nil
	}
	return d.extend(ctx, timeout)
}

func (d *delivery) Failure() (backend.Failure, bool) {
	if d.failure == nil {
		return backend.Failure{}, false
	}
	return *d.failure, true
}

// await returns what was received, or fails the test after a minute.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited a minute for %s", what)
		panic("unreachable")
	}
}

// start runs handlers on s until the test ends.
func start(t *testing.T, s *script, p consume.Params) *consume.Runner {
	t.Helper()
	p.Subscriber = s
	r, err := consume.NewRunner(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = r.Stop(ctx) // what it says is for the test of it
		await(t, "the handlers to return", r.Done())
	})
	return r
}

var onMerge = consume.Subscription{Topic: "merge", Group: "lander"}

func handlers(h ...consume.Handler) []consume.Handler { return h }
