package mqfx_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

// steps is what middlewares write to.
type steps struct {
	mu    sync.Mutex
	names []string
}

func (s *steps) middleware(name string, priority int) consume.Middleware {
	return consume.Middleware{Name: name, Priority: priority, Wrap: func(next consume.Handler) consume.Handler {
		return consume.Wrap(next, func(ctx context.Context, d consume.Delivery) error {
			s.mu.Lock()
			s.names = append(s.names, name)
			s.mu.Unlock()
			return next.Handle(ctx, d)
		})
	}}
}

func TestMiddlewaresAreOrderedByPriority(t *testing.T) {
	got := newCollector("land")
	var out publish.Publisher
	var s *steps
	start(t, inMemory(t), mqfx.Handle(got), fx.Populate(&out, &s), fx.Provide(func() *steps { return new(steps) }),
		mqfx.Middleware(
			func(s *steps) consume.Middleware { return s.middleware("third", 30) },
			func(s *steps) (consume.Middleware, error) { return s.middleware("first", 10), nil },
		),
		fx.Module("nested", mqfx.Middleware(func(s *steps) consume.Middleware { return s.middleware("second", 20) })))
	mustPublish(t, out, "land", message("1"))
	got.expect(t, "1")
	s.mu.Lock()
	defer s.mu.Unlock()
	if order := strings.Join(s.names, " "); order != "first second third" {
		t.Errorf("called in the order %s", order)
	}
}

func TestMiddlewareRefusesWhatIsNone(t *testing.T) {
	s := new(steps)
	for want, option := range map[string]fx.Option{
		"mqfx.Middleware(<nil>): want a constructor":                                                  mqfx.Middleware(nil),
		"mqfx.Middleware(func() string): the constructor's first result must be a consume.Middleware": mqfx.Middleware(func() string { return "" }),
		"mqfx.Middleware(func() consume.Handler): the constructor's first result must be":             mqfx.Middleware(func() consume.Handler { return nil }),
		`"twice"`:  mqfx.Middleware(s.middleware("twice", 1), s.middleware("twice", 2)),
		"no quota": mqfx.Middleware(func() (consume.Middleware, error) { return consume.Middleware{}, errors.New("no quota") }),
	} {
		if err := refused(t, inMemory(t), mqfx.Handle(newCollector("land")), option); !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
}

func TestTracesFollowTheMessageWhereThereIsAProvider(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	got := newCollector("land")
	var out publish.Publisher
	t.Run("traced", func(t *testing.T) {
		start(t, inMemory(t), mqfx.Handle(got), fx.Populate(&out),
			fx.Provide(func() api.TracerProvider { return provider }))
		mustPublish(t, out, "land", message("1"))
		got.expect(t, "1")
	}) // which stops the application, so all spans have ended
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	published, processed := spans[0], spans[1]
	linked := processed.Parent().SpanID() == published.SpanContext().SpanID()
	for _, l := range processed.Links() {
		linked = linked || l.SpanContext.SpanID() == published.SpanContext().SpanID()
	}
	if !linked {
		t.Errorf("%s and %s do not belong together", published.Name(), processed.Name())
	}
}
