package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Middleware does something around every attempt of every handler of a
// [Runner]:
//
//	consume.Middleware{Name: "quota", Priority: consume.PriorityTimeout - 50, Wrap: func(next consume.Handler) consume.Handler {
//		return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
//			if !quota.Take(d.Tenant) {
//				return consume.Postpone(time.Second)
//			}
//			return next.Handle(ctx, d)
//		})
//	}}
type Middleware struct {
	// Name says in errors which one is meant. Required, and unique in a runner.
	Name string
	// Priority orders middlewares: the smallest is outermost, so it begins first
	// and sees the result last. Those of equal priority are in order of their
	// names. The supplied ones have the priorities [PriorityTracing] to
	// [PriorityRecover].
	Priority int
	// Wrap is called once for each handler, when the runner is made. The
	// handler it is given has the subscription that will be used, its group
	// included, and keeps it whatever Subscription of the returned one says. To
	// leave a handler as it is, return it. Required.
	Wrap func(Handler) Handler
}

// Priorities of the supplied middlewares, far enough apart for others to be put
// between them.
const (
	// PriorityTracing is that of tracing.Middleware: all that is inside belongs
	// to the span.
	PriorityTracing = 100
	// PriorityMetrics is that of [Metrics].
	PriorityMetrics = 200
	// PriorityLogging is that of [Logging].
	PriorityLogging = 300
	// PriorityTimeout is that of [Timeout]: what is outside sees its error.
	PriorityTimeout = 400
	// PriorityRecover is that of [Recover]. What is inside of it may panic like
	// a handler; what is outside sees an error, but has to expect panics of
	// other middlewares.
	PriorityRecover = 500
)

// Wrap returns a handler that has the subscription and the name of h, and
// handles by a function, which calls h.Handle or does not. The function is
// called from several goroutines at once.
func Wrap(h Handler, handle func(context.Context, Delivery) error) Handler {
	return &wrapper{Handler: h, handle: handle}
}

type wrapper struct {
	Handler
	handle func(context.Context, Delivery) error
}

func (w *wrapper) Handle(ctx context.Context, d Delivery) error { return w.handle(ctx, d) }

// chain is the middlewares of a runner, the outermost first.
type chain []Middleware

func newChain(given []Middleware) (chain, error) {
	var faults []error
	seen := make(map[string]bool)
	for i, m := range given {
		switch {
		case m.Name == "":
			faults = append(faults, fmt.Errorf("middleware %d of %d has no name; give it one that says what it does", i+1, len(given)))
		case seen[m.Name]:
			faults = append(faults, fmt.Errorf("middleware %q is given twice; drop or rename one", m.Name))
		}
		if m.Wrap == nil {
			faults = append(faults, fmt.Errorf("middleware %q, %d of %d, has a nil Wrap; hand in a function or drop it", m.Name, i+1, len(given)))
		}
		seen[m.Name] = true
	}
	c := slices.Clone(given)
	slices.SortFunc(c, func(a, b Middleware) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Name, b.Name))
	})
	return c, errors.Join(faults...)
}

// wrap puts all middlewares around h.
func (c chain) wrap(h Handler, s Subscription) (Handler, error) {
	for _, m := range slices.Backward(c) {
		h = m.Wrap(pinned{h, s})
		if missing(h) {
			return nil, fmt.Errorf("middleware %q: Wrap returned a nil handler; to leave a handler as it is return the one given", m.Name)
		}
		if r, ok := h.(refused); ok {
			return nil, fmt.Errorf("middleware %q: %w", m.Name, r.err)
		}
	}
	return h, nil
}

// pinned is a handler as a middleware sees it.
type pinned struct {
	Handler
	subscription Subscription
}

func (p pinned) Subscription() Subscription { return p.subscription }

// refused is what a supplied middleware wraps a handler in to report its own
// parameters, since only [NewRunner] has a way to.
type refused struct {
	Handler
	err error
}
