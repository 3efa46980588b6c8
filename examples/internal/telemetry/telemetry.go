// Package telemetry gives an example service its metrics: a tally scope that
// Prometheus reads at /metrics.
package telemetry

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/uber-go/tally/v4"
	reporter "github.com/uber-go/tally/v4/prometheus"
	"go.uber.org/fx"
	"go.uber.org/zap"
)

// Module provides the scope that mqfx counts in, and [Metrics].
var Module = fx.Provide(newScope)

// Metrics serves what was counted.
type Metrics http.Handler

// interval is how often the scope hands its counts over.
const interval = time.Second

// newScope starts the scope's own goroutine, which ends with the application's
// stop, after that of everything that counts. tally starts it with the scope, so
// it outlives an application whose construction fails: the process ends then.
func newScope(lc fx.Lifecycle, log *zap.Logger) (tally.Scope, Metrics, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, nil, fmt.Errorf("register the process's own metrics: %w", err)
		}
	}
	r := reporter.NewReporter(reporter.Options{
		Registerer:      registry,
		OnRegisterError: func(err error) { log.Error("metric not registered", zap.Error(err)) }, // the default panics
	})
	// Without a sanitizer, which would make one of my-topic and my_topic.
	scope, closer := tally.NewRootScope(tally.ScopeOptions{CachedReporter: r, Separator: reporter.DefaultSeparator}, interval)
	lc.Append(fx.StopHook(closer.Close))
	return scope, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
