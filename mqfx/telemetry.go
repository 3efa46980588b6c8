package mqfx

import (
	"fmt"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenantmq/tenantmq/mqfx/internal/harness"
)

// telemetry is where the module's parts report to.
type telemetry struct {
	log   *zap.Logger
	scope tally.Scope
}

type telemetryParams struct {
	fx.In

	Config  Config
	Logger  *zap.Logger     `optional:"true"`
	Scope   tally.Scope     `optional:"true"`
	Harness *harness.Memory `optional:"true"`
}

// newTelemetry names logger and scope here and not by a decorator, which would
// fail an application that has none.
func newTelemetry(p telemetryParams) (telemetry, error) {
	t := telemetry{log: p.Logger, scope: p.Scope}
	if t.log == nil && p.Harness != nil {
		t.log = p.Harness.Logger
	}
	if t.log == nil {
		var err error
		if t.log, err = p.Config.Log.build(); err != nil {
			return telemetry{}, fmt.Errorf("mq.log: %w", err)
		}
	}
	t.log = t.log.Named(root)
	if t.scope == nil {
		t.scope = tally.NoopScope // not one below it, by which nobody would know it
	} else {
		t.scope = t.scope.SubScope(root)
	}
	return t, nil
}

func (l Log) build() (*zap.Logger, error) {
	level, err := zap.ParseAtomicLevel(l.Level)
	if err != nil {
		return nil, err
	}
	c := zap.NewProductionConfig()
	if l.Format == "console" {
		c = zap.NewDevelopmentConfig()
		c.Development = false // a log line must not panic
	}
	c.Level = level
	c.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	c.DisableStacktrace = true // of the line that logs; that of a panic is a field
	return c.Build()
}
