package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
	"github.com/tenantmq/tenantmq/mqfx"
)

// ServerParams are what [Serve] needs.
type ServerParams struct {
	fx.In

	Lifecycle  fx.Lifecycle
	Shutdowner fx.Shutdowner
	Logger     *zap.Logger
	Health     *mqfx.Health
	Metrics    telemetry.Metrics
}

// Serve serves mux on address, host:port, from start to stop of the
// application, and beside it GET /livez and /readyz for the platform and
// /metrics for Prometheus. Whatever mux uses must have been constructed before,
// so that it starts earlier and stops later. A server that fails while it runs
// ends the process with exit code 1.
func Serve(p ServerParams, address string, mux *http.ServeMux) {
	health := p.Health.Handler()
	mux.Handle("GET /livez", health)
	mux.Handle("GET /readyz", health)
	mux.Handle("GET /metrics", p.Metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	served := make(chan struct{})
	p.Lifecycle.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("serve HTTP: %w", err)
			}
			p.Logger.Info("serving HTTP", zap.Stringer("address", listener.Addr()))
			go func() {
				defer close(served)
				if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
					p.Logger.Error("HTTP server ended", zap.Error(err))
					_ = p.Shutdowner.Shutdown(fx.ExitCode(1)) // already shutting down
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := server.Shutdown(ctx)
			if err != nil {
				_ = server.Close()
			}
			<-served
			return err
		},
	})
}
