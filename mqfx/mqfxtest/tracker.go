package mqfxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

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
	subscribed map[string][]string // groups by topic
	published  map[identity]string // ids, of whatever topic
	failures   map[attempt]int
	lastErr    map[attempt]error // of those not settled
	settled    map[attempt]bool
	postponed  map[attempt]time.Time // until when
	messages   []backend.Message     // published, in order
	changed    chan struct{}         // closed and made anew at every event
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
		subscribed: make(map[string][]string), published: make(map[identity]string),
		failures: make(map[attempt]int), lastErr: make(map[attempt]error), settled: make(map[attempt]bool),
		postponed: make(map[attempt]time.Time), buried: make(map[string]int), changed: make(chan struct{}),
	}
}

// event wakes whoever waits for one. It is called with mu held.
func (t *tracker) event() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// next is closed at the next event.
func (t *tracker) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
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
		if len(t.subscribed[m.topic]) == 0 {
			resting++
		}
	}
	for topic, n := range t.buried {
		if len(t.subscribed[topic]) == 0 {
			resting += n
		}
	}
	return t.queue.Stats().Messages - resting
}

// pending describes messages that were published and not settled by all groups
// that subscribe to their topic, at most limit of them.
func (t *tracker) pending(limit int, served tenants.Set) (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for m, id := range t.published {
		for _, group := range t.subscribed[m.topic] {
			a := attempt{m, group}
			if t.settled[a] {
				continue
			}
			line := fmt.Sprintf("tenant %q, topic %q, partition key %q, id %q, group %q: %d attempts failed", m.tenant, m.topic, m.key, id, group, t.failures[a])
			if err := t.lastErr[a]; err != nil {
				line += ", the last: " + err.Error()
			}
			if left := time.Until(t.postponed[a]); left > 0 {
				line += fmt.Sprintf("; postponed for another %v", left.Round(time.Millisecond))
			}
			if !served.Contains(m.tenant) {
				line += "; the application does not serve the tenant"
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	if more := len(lines) - limit; more > 0 {
		lines = append(lines[:limit], fmt.Sprintf("and %d more", more))
	}
	return lines
}

func (t *tracker) messagesOf(topic string) (list []backend.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.messages {
		if m.Topic == topic {
			list = append(list, m)
		}
	}
	return list
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
		q.t.published[identity{m.Tenant, m.Topic, m.PartitionKey, r.Offset}] = m.ID
		if !r.Duplicate {
			m.Offset = r.Offset
			q.t.messages = append(q.t.messages, m)
		}
	}
	q.t.event()
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
	t.event()
}

func (q trackedQueue) Subscribe(ctx context.Context, topic string, cfg backend.SubscriptionConfig) (backend.Subscription, error) {
	inner, err := q.adminQueue.Subscribe(ctx, topic, cfg)
	if err != nil {
		return nil, err
	}
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	q.t.subscribed[topic] = append(q.t.subscribed[topic], cfg.Group)
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

func (d delivery) Ack(ctx context.Context) error {
	err := d.Delivery.Ack(ctx)
	if err == nil {
		d.s.t.mu.Lock()
		defer d.s.t.mu.Unlock()
		d.s.t.settled[d.attempt()] = true
		d.s.t.event()
	}
	return err
}

func (d delivery) Postpone(ctx context.Context, wait time.Duration) error {
	err := d.Delivery.Postpone(ctx, wait)
	if err == nil {
		d.s.t.mu.Lock()
		defer d.s.t.mu.Unlock()
		d.s.t.postponed[d.attempt()] = time.Now().Add(wait)
	}
	return err
}

func (d delivery) attempt() attempt {
	m := d.Message()
	return attempt{identity{m.Tenant, m.Topic, m.PartitionKey, m.Offset}, d.s.cfg.Group}
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
	a := d.attempt()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures[a]++
	t.lastErr[a] = cause
	t.event()
	if !last && t.failures[a] < d.s.cfg.Retry.MaxAttempts {
		return nil
	}
	t.settled[a] = true
	if !d.s.cfg.DeadLetter.Disabled {
		t.given = append(t.given, DeadLetter{Message: m, Group: a.group, Attempts: t.failures[a], Err: cause})
		t.buried[d.s.cfg.DeadLetterTopic(m.Topic)]++
	}
	return nil
}
