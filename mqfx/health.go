package mqfx

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/backend"
)

// Limits of [Health].
const (
	// HealthTimeout bounds a look at the database.
	HealthTimeout = 2 * time.Second
	// StuckAfter is how long a poll loop may stand still, beyond its interval,
	// before the process counts as dead. A database that neither answers nor
	// fails holds it up for the read timeout of 60 s, which no restart mends.
	StuckAfter = 3 * time.Minute
	// StaleAfter is how long a subscription may look for work in vain, beyond its
	// interval, before the process counts as not ready.
	StaleAfter = 10 * time.Second
)

// Health tells whether the module does its work. It is safe for concurrent use.
//
// Live and Ready answer different questions. A process that is not live should
// be restarted; one whose database is away is live all the same, since a restart
// would not help. One that is not ready cannot publish, or does not consume in
// time: it needs no traffic, and somebody's attention.
type Health struct {
	queue *queue
	now   func() time.Time
}

// ErrStopping is what Ready returns from the moment the application stops.
var ErrStopping = errors.New("the application is stopping")

type healthParams struct {
	fx.In

	Queue *queue
}

func newHealth(p healthParams) *Health { return &Health{queue: p.Queue, now: time.Now} }

// Live returns nil while the loops of all subscriptions come round, and before
// the application has started. It does no I/O.
func (h *Health) Live(ctx context.Context) error {
	o := h.queue.opened.Load()
	if o == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel() // the database is none of its business
	var errs []error
	for _, s := range o.Health(ctx).Subscriptions {
		if still := h.now().Sub(s.TickedAt); still > StuckAfter+s.PollInterval {
			errs = append(errs, fmt.Errorf("the poll loop of topic %q, group %q has stood still for %v", s.Topic, s.Group, still.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}

// Ready returns nil while the application has started and does not stop, the
// database answers within [HealthTimeout], all subscriptions find their work,
// and no lease is about to be lost. Otherwise it returns every reason:
// [ErrNotStarted], [ErrStopping], what the database said, or the subscription
// and what is wrong with it.
func (h *Health) Ready(ctx context.Context) error {
	o := h.queue.opened.Load()
	switch {
	case h.queue.stopping.Load():
		return ErrStopping
	case o == nil, !h.queue.started.Load():
		return ErrNotStarted
	}
	ctx, cancel := context.WithTimeoutCause(ctx, HealthTimeout, fmt.Errorf("no answer within %v", HealthTimeout))
	defer cancel()
	state := o.Health(ctx)
	var errs []error
	if state.Store != nil {
		errs = append(errs, fmt.Errorf("%v: %w", h.queue, state.Store))
	}
	for _, s := range state.Subscriptions {
		if old := h.now().Sub(s.PolledAt); old > StaleAfter+s.PollInterval {
			errs = append(errs, fmt.Errorf("topic %q, group %q has not found its work for %v", s.Topic, s.Group, old.Round(time.Second)))
		}
		if s.OverdueLeases > 0 {
			errs = append(errs, fmt.Errorf("topic %q, group %q has %d leases that could not be renewed in time", s.Topic, s.Group, s.OverdueLeases))
		}
	}
	return errors.Join(errs...)
}

// Handler serves GET /livez and GET /readyz: 200 and "ok", or 503 and the
// reasons, one a line. They name topics, groups and the database's user and
// host: serve them where only operators and the platform look.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", check(h.Live))
	mux.Handle("GET /readyz", check(h.Ready))
	return mux
}

func check(is func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		text := "ok"
		if err := is(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		fmt.Fprintln(w, text)
	})
}

var _ backend.HealthReporter = adminQueue(nil)
