// Command stovepipe validates the heads of repositories and tells the last one
// that was green.
//
//	MQ_TENANTS=docs go run ./examples/stovepipe                       # in memory
//	MQ_TENANTS=docs go run ./examples/stovepipe -config examples/stovepipe/config/development.yaml
//	curl -d '{"queue": "docs"}' localhost:8082/ingest
//	curl localhost:8082/queues/docs
package main

import (
	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/examples/internal/settings"
	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func main() { fx.New(service(settings.Files("stovepipe"))).Run() }

func service(files []string) fx.Option {
	return fx.Options(
		mqfx.Module,
		mqfx.WithConfigFiles(files...),
		mqfx.Handle(NewValidateHandler, NewDeadLetterHandler),
		settings.Logging,
		telemetry.Module,
		fx.Provide(settings.Section[Config]("stovepipe", files), newStore),
		fx.Invoke(serve),
	)
}

// newStore keeps heads where the queue keeps its messages.
func newStore(lc fx.Lifecycle, cfg mqfx.Config, p publish.Publisher) (Store, error) {
	if cfg.Backend == mqfx.BackendMemory {
		return NewMemoryStore(p), nil
	}
	db, err := database.Open(lc, cfg, "stovepipe", versions)
	return NewMySQLStore(db, p), err
}

func serve(p web.ServerParams, cfg Config, set tenants.Set, store Store) {
	web.Serve(p, cfg.Address, API{Config: cfg, Tenants: set, Store: store}.Routes(p.Logger))
}
