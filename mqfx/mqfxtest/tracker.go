package mqfxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/tenants"
)

// tracker stands between the module and its queue.
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
	out        int                   // deliveries whose end has not been noted
	changed    chan struct{}         // closed and made anew at every event
	given      []DeadLetter
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
		postponed: make(map[attempt]time.Time), changed: make(chan struct{}),
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

// unsettled counts the stored messages of topics that somebody subscribes to
// (none of the others will be settled by a handler), or the deliveries that have
// just been settled and are not noted here yet.
func (t *tracker) unsettled() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, messages := range t.queue.MessagesByTopic() {
		if len(t.subscribed[topic]) > 0 {
			n += messages
		}
	}
	return max(n, t.out)
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
	return slices.SortedStableFunc(slices.Values(t.given), func(a, b DeadLetter) int { return cmp.Compare(a.Offset, b.Offset) })
}

type adminQueue interface {
	backend.Queue
	backend.Admin
}

func (t *tracker) wrap(q backend.Queue) backend.Queue { return trackedQueue{q.(adminQueue), t} }

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
		case inner, ok := <-in:
			if !ok {
				return
			}
			d := s.track(inner)
			select {
			case s.out <- d:
			case <-s.quit:
				d.end()
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
	s   *subscription
	end func() // once: its end is noted
}

// track tells the tracker also when d ends without an answer: in a test nobody
// takes leases over, so its visibility has ended, and with that the attempt.
func (s *subscription) track(inner backend.Delivery) delivery {
	d := delivery{Delivery: inner, s: s}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.out++
	d.end = sync.OnceFunc(func() {
		s.t.mu.Lock()
		defer s.t.mu.Unlock()
		s.t.out--
		s.t.event()
	})
	context.AfterFunc(d.Context(), func() {
		switch cause := context.Cause(d.Context()); {
		case errors.Is(cause, backend.ErrLeaseLost):
			d.failed(errNoAnswer, false)
			d.end()
		case errors.Is(cause, backend.ErrClosed):
			d.end()
		}
	})
	return d
}

var errNoAnswer = errors.New("the visibility ended without an answer")

// answered notes what has become of d once its answer is written.
func (d delivery) answered(err error, note func(t *tracker, a attempt)) error {
	defer d.end()
	if err == nil {
		d.s.t.mu.Lock()
		defer d.s.t.mu.Unlock()
		note(d.s.t, d.attempt())
	}
	return err
}

func (d delivery) Ack(ctx context.Context) error {
	return d.answered(d.Delivery.Ack(ctx), func(t *tracker, a attempt) { t.settled[a] = true })
}

func (d delivery) Postpone(ctx context.Context, wait time.Duration) error {
	return d.answered(d.Delivery.Postpone(ctx, wait), func(t *tracker, a attempt) { t.postponed[a] = time.Now().Add(wait) })
}

func (d delivery) Nack(ctx context.Context, cause error) error {
	return d.answered(d.Delivery.Nack(ctx, cause), func(t *tracker, _ attempt) { t.note(d, cause, false) })
}

func (d delivery) Reject(ctx context.Context, cause error) error {
	return d.answered(d.Delivery.Reject(ctx, cause), func(t *tracker, _ attempt) { t.note(d, cause, true) })
}

func (d delivery) attempt() attempt {
	m := d.Message()
	return attempt{identity{m.Tenant, m.Topic, m.PartitionKey, m.Offset}, d.s.cfg.Group}
}

func (d delivery) failed(cause error, last bool) {
	d.s.t.mu.Lock()
	defer d.s.t.mu.Unlock()
	d.s.t.note(d, cause, last)
}

// note takes in a failed attempt, and the dead letter if it was the last. It is
// called with mu held.
func (t *tracker) note(d delivery, cause error, last bool) {
	a := d.attempt()
	t.failures[a] = d.Attempt()
	t.lastErr[a] = cause
	if !last && t.failures[a] < d.s.cfg.Retry.MaxAttempts {
		return
	}
	t.settled[a] = true
	if !d.s.cfg.DeadLetter.Disabled {
		t.given = append(t.given, DeadLetter{Message: d.Message(), Group: a.group, Attempts: t.failures[a], Err: cause})
	}
}
