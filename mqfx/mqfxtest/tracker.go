package mqfxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/tenants"
)

// tracker stands between the module and its queue. It knows how many of the
// stored messages rest: nobody subscribes to their topic, so no handler will
// settle them. All others are still to be settled.
type tracker struct {
	mu         sync.Mutex
	queue      *memory.Queue
	subscribed map[string]bool
	published  map[identity]bool // to whatever topic, as long as nobody subscribes to it
	failures   map[attempt]int
	given      []DeadLetter
	buried     map[string]int // dead letters by the topic they went to
}

// identity of a stored message.
type identity struct {
	tenant     tenants.ID
	topic, key string
	offset     uint64
}

type attempt struct {
	identity
	group string
}

func newTracker() *tracker {
	return &tracker{
		subscribed: make(map[string]bool), published: make(map[identity]bool),
		failures: make(map[attempt]int), buried: make(map[string]int),
	}
}

func (t *tracker) opened(q *memory.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = q
}

// unsettled is read from the queue after the messages at rest have been counted:
// a message that comes to rest meanwhile counts once too often, never too
// rarely.
func (t *tracker) unsettled() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	resting := 0
	for m := range t.published {
		if !t.subscribed[m.topic] {
			resting++
		}
	}
	for topic, n := range t.buried {
		if !t.subscribed[topic] {
			resting += n
		}
	}
	return t.queue.Stats().Messages - resting
}

func (t *tracker) deadLetters() []DeadLetter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.given)
}

type adminQueue interface {
	backend.Queue
	backend.Admin
}

func (t *tracker) decorate(q backend.Queue) backend.Queue { return trackedQueue{q.(adminQueue), t} }

type trackedQueue struct {
	adminQueue
	t *tracker
}

func (q trackedQueue) Publish(ctx context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	receipts, err := q.adminQueue.Publish(ctx, msgs...)
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	for i, r := range receipts {
		m := msgs[i]
		q.t.published[identity{m.Tenant, m.Topic, m.PartitionKey, r.Offset}] = true
	}
	return receipts, err
}

func (q trackedQueue) Redrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) error {
	q.t.bury(topic, -1) // first: from the moment it moves it is to be settled again
	err := q.adminQueue.Redrive(ctx, tenant, topic, partitionKey, id)
	if err != nil {
		q.t.bury(topic, 1)
	}
	return err
}

func (t *tracker) bury(topic string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buried[topic] += n
}

func (q trackedQueue) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	inner, err := q.adminQueue.Subscribe(ctx, topic, cfg)
	if err != nil {
		return nil, err
	}
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	q.t.subscribed[topic] = true
	s := &subscription{
		Subscription: inner, t: q.t, cfg: cfg.WithDefaults(),
		out: make(chan backend.Delivery), quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.quitOnce = sync.OnceFunc(func() { close(s.quit) })
	go s.pass()
	return s, nil
}

// subscription passes deliveries on. Its goroutine ends with the inner
// subscription, or with Stop, which waits for it.
type subscription struct {
	backend.Subscription
	t          *tracker
	cfg        backend.SubscriptionConfig
	out        chan backend.Delivery
	quit, done chan struct{}
	quitOnce   func()
}

func (s *subscription) pass() {
	defer close(s.done)
	defer close(s.out)
	in := s.Subscription.Deliveries()
	for {
		select {
		case d, ok := <-in:
			if !ok {
				return
			}
			select {
			case s.out <- delivery{d, s}:
			case <-s.quit:
				return
			}
		case <-s.quit:
			return
		}
	}
}

func (s *subscription) Deliveries() <-chan backend.Delivery { return s.out }

func (s *subscription) Stop(ctx context.Context) error {
	err := s.Subscription.Stop(ctx)
	s.quitOnce()
	<-s.done
	return err
}

// delivery tells the tracker what becomes of a message.
type delivery struct {
	backend.Delivery
	s *subscription
}

func (d delivery) Nack(ctx context.Context, cause error) error {
	return d.fail(d.Delivery.Nack(ctx, cause), cause, false)
}

func (d delivery) Reject(ctx context.Context, cause error) error {
	return d.fail(d.Delivery.Reject(ctx, cause), cause, true)
}

// fail notes a failed attempt once it is written, and the dead letter if it was
// the last. In a test nothing else spends attempts: no process crashes, and
// running handlers keep their visibility.
func (d delivery) fail(err, cause error, last bool) error {
	if err != nil {
		return err
	}
	m, t := d.Message(), d.s.t
	a := attempt{identity{m.Tenant, m.Topic, m.PartitionKey, m.Offset}, d.s.cfg.Group}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures[a]++
	if (last || t.failures[a] >= d.s.cfg.Retry.MaxAttempts) && !d.s.cfg.DeadLetter.Disabled {
		t.given = append(t.given, DeadLetter{Message: m, Group: a.group, Attempts: t.failures[a], Err: cause})
		t.buried[d.s.cfg.DeadLetterTopic(m.Topic)]++
	}
	return nil
}
