package engine

import (
	"context"
	"fmt"
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
	// TenantMetrics is the number of tenants, the first of the set, with a tag of
	// their own; 0 leaves the tag out.
	TenantMetrics int
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

// Subscription implements [backend.Subscription].
//
// Its goroutines, all started by Start and waited for by Stop:
//
//	poller     finds partitions with work                      poll.go
//	keeper     heartbeats, renewals, pause, handover           keep.go
//	cleaner    garbage, and what the dead left behind          keep.go
//	sampler    the lag, unless nobody wants metrics            lag.go
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
	faults     *faults
	skew       atomic.Int64 // nanoseconds that the store's clock is ahead of ours

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
	releaseKick  chan struct{}
	beatKick     chan struct{}
	controlKick  chan struct{}
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
	releases  []*partition       // to be given back
	leases    int                // partitions held
	toRenew   fifo[*tenant]      // with leases that are due
	renewers  int                // at work on them
	inflight  int                // handed over and not yet durably answered
	bytes     int                // of the payloads held
	size      int                // of a payload, estimated high rather than low
	listing   int                // number of the listing under way
	listingAt time.Time          // when it began
	polledAt  time.Time          // when one last succeeded
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
		met:          newMetrics(o),
		deliveries:   make(chan backend.Delivery),
		stopping:     make(chan struct{}),
		dispatched:   make(chan struct{}),
		quitting:     make(chan struct{}),
		stopped:      make(chan struct{}),
		dispatchKick: make(chan struct{}, 1),
		pollKick:     make(chan struct{}, 1),
		releaseKick:  make(chan struct{}, 1),
		beatKick:     make(chan struct{}, 1),
		controlKick:  make(chan struct{}, 1),
		alarmKick:    make(chan struct{}, 1),
		tenants:      make(map[tenants.ID]*tenant),
		recent:       make(map[partKey]uint64),
	}
	s.size = firstSize
	s.faults = newFaults(o.Logger, s.met.scope)
	s.toAdvance, s.toSettle = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	s.idle = sync.NewCond(&s.mu)
	if err := o.Store.Register(ctx, s.list); err != nil {
		return nil, fmt.Errorf("registering group %q of topic %q: %w", o.Config.Group, o.Topic, err)
	}
	s.listingAt, s.polledAt = time.Now(), time.Now()
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	o.Hub.add(o.Topic, s)
	s.workers.Go(s.poll)
	s.workers.Go(s.keep)
	s.workers.Go(s.clean)
	if o.Scope != tally.NoopScope {
		s.workers.Go(s.sample)
	}
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

// get returns the tenant's state, made on first use.
func (s *Subscription) get(id tenants.ID) *tenant {
	t := s.tenants[id]
	if t == nil {
		weight := max(s.o.Config.TenantWeights[id], 1)
		t = &tenant{
			s: s, id: id, weight: weight, credit: weight, met: s.met.of(id),
			parts:      make(map[string]*partition),
			candidates: make(map[string]*candidate),
			passed:     make(map[string]passed),
			activeAt:   time.Now(),
		}
		s.tenants[id] = t
		kick(s.beatKick)
	}
	return t
}
