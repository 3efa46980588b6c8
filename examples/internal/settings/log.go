package settings

import (
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"
)

// Logging provides the logger of the whole process. Of Fx it shows the errors,
// and at level debug the rest.
var Logging = fx.Options(
	fx.Provide(func() (*zap.Logger, error) {
		cfg := zap.NewProductionConfig()
		cfg.DisableStacktrace = true
		return cfg.Build()
	}),
	fx.WithLogger(func(log *zap.Logger) fxevent.Logger {
		l := &fxevent.ZapLogger{Logger: log}
		l.UseLogLevel(zap.DebugLevel)
		return l
	}),
)
