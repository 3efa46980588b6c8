package mqfx

import (
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tracing"
)

// traces is where spans go: nowhere, unless the application has a provider.
type traces struct {
	fx.In

	Provider   trace.TracerProvider          `optional:"true"`
	Propagator propagation.TextMapPropagator `optional:"true"`
}

func (t traces) publisher(p publish.Publisher) publish.Publisher {
	if t.Provider == nil {
		return p
	}
	return tracing.Publisher(p, t.Provider, t.Propagator)
}

func (t traces) middleware() []consume.Middleware {
	if t.Provider == nil {
		return nil
	}
	return []consume.Middleware{tracing.Middleware(t.Provider, t.Propagator)}
}
