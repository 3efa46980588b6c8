package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Params of [NewQueue].
type Params struct {
	// DB is the pool the queue works on. Required; [Open] makes one with the
	// right settings. The queue never closes it.
	DB *sql.DB
	// Reserve is a second, small pool of the same database, for what must not
	// wait until others have done with connections of DB: PublishTx, whose
	// callers may hold all of them, and the keeping of leases, while handlers
	// may. Nil: Verify keeps ReserveConns of DB aside until Close. The queue
	// never closes it.
	Reserve *sql.DB
	// ReserveConns is the number of connections kept aside without a Reserve.
	// Default 2, 1 to 16; never more than half of those that DB may open.
	ReserveConns int
	// Tenants are those that Subscribe consumes for. Publishing needs none.
	Tenants tenants.Set
	Config  Config
	Logger  *zap.Logger // nil: none
	Scope   tally.Scope // nil: none
	// OnFault is told once, by a [FaultError], that the tables are not those the
	// queue works on any more: dropped, or migrated by another version. The queue
	// goes on trying; a service had better end. It is called on a goroutine of its
	// own, which Close waits for: it must not wait for Close. Nil: it is only
	// logged.
	OnFault func(error)
	// TenantMetrics gives the first so many of Tenants, in order, a tag "tenant" on
	// what is counted of messages, and on the lag; all others share "other". Every
	// tenant tagged makes about ten series a topic and group. Default 0: no such
	// tag. At most 1,000.
	TenantMetrics int
}

// Queue implements [backend.Queue], [backend.Admin] and
// [backend.HealthReporter]. It is safe for concurrent use.
//
// Its goroutines: the publish runners of [lanes], which exist while there is
// something to publish, and for each subscription those of the engine and one
// that waits for its end. Close waits for all of them.
type Queue struct {
	db      *sql.DB
	reserve *reserve
	tenants tenants.Set
	cfg     Config
	log     *zap.Logger
	scope   tally.Scope
	tagged  int // tenants, in metrics
	metrics metrics
	hooks   hooks
	hub     engine.Hub

	onFault    func(error)
	faultOnce  sync.Once
	suspecting atomic.Bool // the tables are being looked at

	verified  atomic.Bool
	vitess    atomic.Bool   // as found out by verify
	verifying chan struct{} // held by whoever verifies lazily

	ctx    context.Context // of the publish transactions
	cancel context.CancelFunc
	lanes  lanes

	mu       sync.Mutex
	closing  bool // no new subscriptions
	sealed   bool // no new calls at all
	calls    sync.WaitGroup
	subs     map[*engine.Subscription]struct{}
	watchers sync.WaitGroup // one a subscription
	closed   chan struct{}  // closed when Close is through
	closeErr error
}

// hooks are for the tests that show what the protocol is for.
type hooks struct {
	fenceOff bool
	// inserted runs in a publish transaction, after its insert.
	inserted func(*sql.Tx)
}

// NewQueue does no I/O. It returns a [backend.FieldError] for what it refuses.
func NewQueue(p Params) (*Queue, error) {
	if p.DB == nil {
		return nil, &backend.FieldError{Field: "db", Rule: "must not be nil; mysql.Open makes one"}
	}
	cfg := p.Config.withDefaults()
	setDefault(&p.ReserveConns, DefaultReserveConns)
	if err := cmp.Or(cfg.validate(), checkRange("reserve connections", p.ReserveConns, 1, MaxReserveConns),
		checkRange("tenant metrics", p.TenantMetrics, 0, backend.MaxTenantMetrics)); err != nil {
		return nil, err
	}
	q := &Queue{
		db: p.DB, reserve: newReserve(p.DB, p.Reserve, p.ReserveConns), tenants: p.Tenants, cfg: cfg, log: p.Logger, scope: p.Scope,
		onFault:   p.OnFault,
		tagged:    p.TenantMetrics,
		verifying: make(chan struct{}, 1),
		subs:      make(map[*engine.Subscription]struct{}),
		closed:    make(chan struct{}),
	}
	if q.log == nil {
		q.log = zap.NewNop()
	}
	q.log = engine.Quiet(q.log)
	if q.scope == nil {
		q.scope = tally.NoopScope
	}
	q.metrics = newMetrics(q.scope, p.Tenants, p.TenantMetrics)
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.lanes = lanes{
		commit: q.commit, maxRows: cfg.MaxBatchRows, maxSize: cfg.MaxBatchBytes,
		byTenant: make(map[tenants.ID]*lane),
	}
	return q, nil
}

// enter counts a call in, for Close to wait for, and makes its context end when
// Close runs out of time. It returns [backend.ErrClosed] once closed.
func (q *Queue) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed {
		return nil, nil, backend.ErrClosed
	}
	q.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(q.ctx, func() { cancel(backend.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		q.calls.Done()
	}, nil
}

// Close implements [backend.Queue]. In order: 1. no new subscriptions; 2. those
// that are there stop, while their handlers may still publish; 3. no new calls,
// and those under way finish; 4. when ctx ends first, their transactions are
// cut off; 5. the connections kept aside go back. Params.DB stays open.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	first := !q.closing
	q.closing = true
	q.mu.Unlock()
	if !first {
		select {
		case <-q.closed:
			return q.closeErr
		case <-ctx.Done():
			return fmt.Errorf("wait for another Close: %w", context.Cause(ctx))
		}
	}
	defer close(q.closed)

	q.closeErr = q.stopSubscriptions(ctx)
	q.mu.Lock()
	q.sealed = true
	q.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		q.calls.Wait()
		q.lanes.runners.Wait()
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		q.cancel()
		<-idle
		q.closeErr = errors.Join(q.closeErr, fmt.Errorf("calls under way were cut off: %w", context.Cause(ctx)))
	}
	q.cancel()
	q.reserve.close()
	return q.closeErr
}
