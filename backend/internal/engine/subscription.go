package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Options of a subscription. Config has its defaults filled in and is valid,
// SubscriberName included.
type Options struct {
	Topic   string
	Config  backend.SubscriptionConfig
	Tenants tenants.Set
	Store   Store
	Hub     *Hub
	Logger  *zap.Logger // nil: none
	Scope   tally.Scope // nil: none
}

// Workers of a subscription. Their number does not depend on the number of
// partitions or tenants.
const (
	advancers = 3
	settlers  = 4
	// tenantSettlers is the number of settlements of one tenant under way at
	// once. The second starts only with a full batch: outcomes that come in
	// while one is written go together into the next.
	tenantSettlers = 2
)

// releaseTimeout bounds what Stop does after its context has ended.
const releaseTimeout = 2 * time.Second

// lasting returns a context that outlives ctx by releaseTimeout.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	end := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(releaseTimeout):
		case <-longer.Done():
		}
		cancel()
	})
	return longer, func() { end(); cancel() }
}

// Subscription implements [backend.Subscription].
//
// Its goroutines, all started by Start and waited for by Stop:
//
//	poller     finds partitions with work                      poll.go
//	keeper     heartbeats, renewals, pause, handover           keep.go
//	cleaner    garbage, and what the dead left behind          keep.go
//	advancers  acquire leases, fetch, claim                    advance.go
//	dispatcher hands messages over, tenant by tenant           dispatch.go
//	settlers   write outcomes, many in a transaction           settle.go
//	timekeeper visibility, backoff, local lease expiry         dispatch.go
//
// They share the state below mu, which is never held over a store call. What a
// partition needs next is decided in one place, touch, called after every
// change to it.
type Subscription struct {
	o          Options
	list       []tenants.ID
	settleDown time.Duration // a partition is not handed over sooner after it was acquired
	met        metrics
	faults     faults

	ctx        context.Context // of the store calls and of the deliveries
	cancel     context.CancelCauseFunc
	deliveries chan backend.Delivery
	stopping   chan struct{} // closed first: no new deliveries
	dispatched chan struct{} // closed second: nothing is about to be handed over
	quitting   chan struct{} // closed third: the workers leave
	stopped    chan struct{} // closed last
	stopOnce   sync.Once
	stopErr    error
	workers    sync.WaitGroup

	dispatchKick chan struct{} // something may be ready, or a pick is revoked
	pollKick     chan struct{}
	keepKick     chan struct{}
	alarmKick    chan struct{}

	mu        sync.Mutex
	toAdvance *sync.Cond // advances has grown, or quit is set
	toSettle  *sync.Cond // settles has grown, or quit is set
	quit      bool
	halted    bool // no new deliveries
	tenants   map[tenants.ID]*tenant
	ring      fifo[*tenant] // tenants with ready partitions, in turn
	advances  fifo[*tenant]
	settles   fifo[*tenant]
	alarms    alarms
	releases  []*partition // to be given back
	leases    int          // partitions held
	renewals  int          // tenants whose leases are being renewed
	inflight  int          // handed over and not yet durably answered
	bytes     int          // of the payloads held
	size      int          // of a payload, estimated high rather than low
	listing   int          // number of the listing under way
	listingAt time.Time
	looking   bool               // a listing is under way
	recent    map[partKey]uint64 // drained since the listing began, with their last offset
	pending   *delivery          // picked, not yet received
	idle      *sync.Cond         // inflight has fallen
}

type partKey struct {
	tenant tenants.ID
	key    string
}

// Start registers the group and starts delivering. ctx bounds the
// registration only.
func Start(ctx context.Context, o Options) (*Subscription, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Scope == nil {
		o.Scope = tally.NoopScope
	}
	o.Logger = o.Logger.With(zap.String("topic", o.Topic), zap.String("group", o.Config.Group))
	s := &Subscription{
		o:            o,
		list:         o.Tenants.IDs(),
		settleDown:   min(o.Config.LeaseDuration, time.Second),
		met:          newMetrics(o.Scope, o.Topic, o.Config.Group),
		deliveries:   make(chan backend.Delivery),
		stopping:     make(chan struct{}),
		dispatched:   make(chan struct{}),
		quitting:     make(chan struct{}),
		stopped:      make(chan struct{}),
		dispatchKick: make(chan struct{}, 1),
		pollKick:     make(chan struct{}, 1),
		keepKick:     make(chan struct{}, 1),
		alarmKick:    make(chan struct{}, 1),
		tenants:      make(map[tenants.ID]*tenant),
		recent:       make(map[partKey]uint64),
	}
	s.size = firstSize
	s.faults.log, s.faults.scope = o.Logger, s.met.scope
	s.toAdvance, s.toSettle = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	s.idle = sync.NewCond(&s.mu)
	if err := o.Store.Register(ctx, s.list); err != nil {
		return nil, fmt.Errorf("registering group %q of topic %q: %w", o.Config.Group, o.Topic, err)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	o.Hub.add(o.Topic, s)
	s.workers.Go(s.poll)
	s.workers.Go(s.keep)
	s.workers.Go(s.clean)
	s.workers.Go(s.dispatch)
	s.workers.Go(s.watchAlarms)
	for range advancers {
		s.workers.Go(s.advance)
	}
	for range settlers {
		s.workers.Go(s.settle)
	}
	return s, nil
}

// Deliveries implements [backend.Subscription].
func (s *Subscription) Deliveries() <-chan backend.Delivery { return s.deliveries }

// Done is closed once the subscription has stopped.
func (s *Subscription) Done() <-chan struct{} { return s.stopped }

// Stop implements [backend.Subscription]. In order: 1. no new deliveries; 2.
// those in flight may settle; 3. when ctx ends first, the rest lose their
// contexts and are counted; 4. the workers leave; 5. leases and heartbeats are
// given back.
func (s *Subscription) Stop(ctx context.Context) error {
	first := false
	s.stopOnce.Do(func() { first = true; go s.stop(ctx) })
	if !first { // the first caller's time is not this one's
		select {
		case <-s.stopped:
		case <-ctx.Done():
			return fmt.Errorf("subscription of topic %q, group %q is still stopping: %w", s.o.Topic, s.o.Config.Group, context.Cause(ctx))
		}
	}
	<-s.stopped // within releaseTimeout after ctx has ended
	return s.stopErr
}

func (s *Subscription) stop(ctx context.Context) {
	defer close(s.stopped)
	s.o.Hub.remove(s.o.Topic, s)
	close(s.stopping)
	s.mu.Lock()
	s.halted = true
	s.mu.Unlock()

	<-s.dispatched
	cut := s.drain(ctx)
	close(s.quitting)
	s.mu.Lock()
	s.quit = true
	s.toAdvance.Broadcast()
	s.toSettle.Broadcast()
	s.mu.Unlock()
	left := make(chan struct{})
	go func() { s.workers.Wait(); close(left) }()
	end, cancel := lasting(ctx)
	defer cancel()
	select { // a store call under way is given its time before it is cut off
	case <-left:
	case <-end.Done():
		s.cancel(backend.ErrClosed)
		<-left
	}
	err := s.giveBack(end)
	s.cancel(backend.ErrClosed)
	if cut > 0 {
		err = errors.Join(fmt.Errorf("%d deliveries cut off and returned without an attempt: %w", cut, context.Cause(ctx)), err)
	}
	if err != nil {
		s.stopErr = fmt.Errorf("subscription of topic %q, group %q: %w", s.o.Topic, s.o.Config.Group, err)
	}
}

// drain waits until nothing is in flight and returns what was when ctx ended.
func (s *Subscription) drain(ctx context.Context) (cut int) {
	release := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle.Broadcast()
	})
	defer release()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.inflight > 0 && ctx.Err() == nil {
		s.idle.Wait()
	}
	for _, t := range s.tenants {
		for _, p := range t.parts {
			cut += p.outs
			s.takeBack(p)
		}
	}
	return cut
}

// takeBack ends the deliveries of p that are out, as if they had not been made.
func (s *Subscription) takeBack(p *partition) {
	for _, e := range p.entries {
		if e.status != out {
			continue
		}
		charge := e.charge
		p.unspend(e)
		s.supersede(p, e, backend.ErrClosed)
		e.status = waiting
		if charge != uncharged { // what is stored, or on its way, has to be taken back
			e.status, e.write, e.visibleAt = writing, writeFail, time.Time{}
			p.writes++
			p.failing++
		}
	}
	p.scan = 0
}

// supersede ends a delivery that is out.
func (s *Subscription) supersede(p *partition, e *entry, cause error) {
	e.d.over = true
	e.d.disclose()
	e.d.cancel(cause)
	e.d = nil
	p.outs--
	s.land(1)
}

// land takes n deliveries out of flight.
func (s *Subscription) land(n int) {
	s.inflight -= n
	if n > 0 {
		s.idle.Broadcast()
		kick(s.dispatchKick)
	}
}

// giveBack writes what takeBack left and releases all leases, a few tenants at
// a time. What it cannot release expires.
func (s *Subscription) giveBack(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.tenants))
	s.mu.Unlock()
	var failed atomic.Int64
	each(all, func(t *tenant) {
		s.returnCharges(ctx, t)
		for chunk := range slices.Chunk(s.handBack(t), leaseChunk) {
			if err := s.o.Store.Release(ctx, t.id, chunk); err != nil {
				s.faults.report("release", t.id, err)
				failed.Add(int64(len(chunk)))
			}
		}
		if !t.beatAt.IsZero() {
			if err := s.o.Store.Leave(ctx, t.id); err != nil {
				s.faults.report("leave", t.id, err)
			}
		}
	})
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d leases could not be released and expire within %v", n, s.o.Config.LeaseDuration)
	}
	return nil
}

// handBack forgets the partitions of a tenant and returns their leases.
func (s *Subscription) handBack(t *tenant) (back []Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range t.parts {
		back = append(back, Release{Lease: p.lease(), Forget: p.idle()})
		p.dropped = true
		for _, e := range p.entries { // an outcome that could not be written
			if e.d != nil && e.status == writing {
				s.answer(e, backend.ErrLeaseLost)
			}
		}
	}
	return back
}

func (s *Subscription) returnCharges(ctx context.Context, t *tenant) {
	for {
		s.mu.Lock()
		parts, batch := s.collect(t, time.Now())
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		results, err := s.o.Store.Settle(ctx, t.id, batch)
		s.mu.Lock()
		if err == nil {
			s.settled(t, parts, batch, results)
		}
		s.mu.Unlock()
		if err != nil {
			s.faults.report("settle", t.id, err)
			return
		}
	}
}

// get returns the tenant's state, made on first use.
func (s *Subscription) get(id tenants.ID) *tenant {
	t := s.tenants[id]
	if t == nil {
		weight := max(s.o.Config.TenantWeights[id], 1)
		t = &tenant{
			s: s, id: id, weight: weight, credit: weight,
			parts:      make(map[string]*partition),
			candidates: make(map[string]*candidate),
			passed:     make(map[string]passed),
			activeAt:   time.Now(),
		}
		s.tenants[id] = t
		kick(s.keepKick)
	}
	return t
}

// touch puts p where it has to go next. It is called with mu held after every
// change to p.
func (s *Subscription) touch(p *partition, now time.Time) {
	if p.dropped {
		return
	}
	t := p.t
	if !p.inReady && !p.leaving && !p.draining && !s.halted {
		e, at := p.next(now, s.strict(), s.o.Config.Retry.MaxAttempts)
		if e != nil {
			p.inReady = true
			t.ready.push(p)
			s.join(t)
		} else if !at.IsZero() {
			s.alarm(p, at)
			if p.blockedUntil.Sub(now) > longBlock {
				p.truncate()
			}
		}
	}
	if !p.fetching && !p.inFetch && s.wantsFetch(p) {
		p.inFetch = true
		t.fetch.push(p)
		s.offer(t)
	}
	if !p.settling && !p.inDirty && s.wantsSettle(p, now) {
		p.inDirty = true
		t.dirty.push(p)
		s.offerSettle(t)
	}
	if p.leaving && p.outs == 0 && p.writes == 0 && !p.settling && !p.fetching && !p.inDirty {
		s.drop(p)
		s.releases = append(s.releases, p)
		kick(s.keepKick)
	}
}

func (s *Subscription) strict() bool { return s.o.Config.Ordering == backend.Strict }

func (s *Subscription) wantsFetch(p *partition) bool {
	if p.draining || p.leaving || s.halted || p.fetched >= p.tail && len(p.late) == 0 {
		return false
	}
	if len(p.late) > 0 {
		return true
	}
	if p.blockedUntil.After(time.Now()) {
		return false // what is behind can wait as well
	}
	return p.fresh() <= s.batch(p.t)/2 && len(p.entries) < maxEntries
}

// longBlock is how long a partition has to be held up for what was read of it
// to be forgotten.
const longBlock = 100 * time.Millisecond

// maxEntries bounds what is kept in memory, and as delivery states, of a
// partition behind a message that does not get settled.
const maxEntries = 10_000

// batch is the number of messages to read of a partition at a time: fewer when
// many partitions share the handlers, one at a time when payloads are large.
func (s *Subscription) batch(t *tenant) int {
	limit := min(s.o.Config.BatchSize, max(4*s.o.Config.MaxInFlight/max(len(t.parts), 1), 2))
	return max(min(limit, s.room()), 1)
}

// room is the number of messages that may be read before the payloads held
// exceed maxBytes, if they are of the size of those read last.
func (s *Subscription) room() int { return max(maxBytes-s.bytes, 0) / max(s.size, 1) }

// maxBytes is the amount of payload held beyond which prefetching ends.
const maxBytes = 64 << 20

// firstSize is what payloads are taken for until some have been read.
const firstSize = 1 << 20

func (s *Subscription) wantsSettle(p *partition, now time.Time) bool {
	if p.holdUntil.After(now) {
		s.alarm(p, p.holdUntil)
		return false
	}
	if p.writes > 0 {
		return true
	}
	if p.retryAt.After(now) {
		s.alarm(p, p.retryAt)
		return false
	}
	if len(p.late) > 0 {
		return false // the watermark stands before it, until it is read and settled
	}
	if p.leaving || s.halted {
		return p.prefix() > 0
	}
	return p.prefix() > 0 || p.idle()
}

// lose gives up a partition that is not ours any more.
func (s *Subscription) lose(p *partition) {
	if p.dropped {
		return
	}
	s.met.leaseLosses.Inc(1)
	s.o.Logger.Warn("lease lost", zap.String("tenant", string(p.t.id)), zap.String("partition_key", p.key), zap.Int("in_flight", p.outs))
	s.drop(p)
}

// drop forgets a partition. Deliveries still out are superseded; what a
// settlement under way will say of others holds.
func (s *Subscription) drop(p *partition) {
	p.dropped = true
	for _, e := range p.entries {
		p.unload(e)
		switch {
		case e.d == nil || e.sent:
		case e.status == out:
			s.supersede(p, e, backend.ErrLeaseLost)
		default:
			s.answer(e, backend.ErrLeaseLost)
		}
	}
	delete(p.t.parts, p.key)
	s.alarms.remove(p)
	s.leases--
	s.met.leases.Update(float64(s.leases))
}

// answer ends the wait of a handler for the outcome of its settlement.
func (s *Subscription) answer(e *entry, err error) {
	e.d.result <- err
	e.d = nil
	s.land(1)
}

// answerSent does so for all that a settlement of a partition dropped meanwhile
// has covered.
func (s *Subscription) answerSent(p *partition, err error) {
	for _, e := range p.entries {
		if e.sent && e.d != nil {
			s.answer(e, err)
		}
	}
}

func (s *Subscription) join(t *tenant) {
	if !t.inRing && !t.paused {
		t.inRing = true
		s.ring.push(t)
	}
	kick(s.dispatchKick)
}

func (s *Subscription) offer(t *tenant) {
	if !t.inAdvance && !t.advancing {
		t.inAdvance = true
		s.advances.push(t)
		s.toAdvance.Signal()
	}
}

func (s *Subscription) offerSettle(t *tenant) {
	if !t.inSettle && (t.settlers == t.isolated && t.settlers < tenantSettlers || t.settlers < tenantSettlers && t.dirty.len() >= settlePartitions) {
		t.inSettle = true
		s.settles.push(t)
		s.toSettle.Signal()
	}
}

func (s *Subscription) alarm(p *partition, at time.Time) {
	if s.alarms.set(p, at) {
		kick(s.alarmKick)
	}
}

// jitter draws uniformly up to the bound ("full jitter"; Brooker, Exponential
// Backoff And Jitter, AWS Architecture Blog, 2015).
func (s *Subscription) jitter(bound time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
