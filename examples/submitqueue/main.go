// Command submitqueue takes changes over HTTP, has them checked, and has runway
// merge those that pass.
//
//	MQ_TENANTS=docs,ios go run ./examples/submitqueue                 # in memory
//	MQ_TENANTS=docs,ios go run ./examples/submitqueue -config examples/submitqueue/config/development.yaml
//	curl -d '{"queue": "docs", "change": "fix-typo"}' localhost:8081/land
package main

import (
	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/examples/internal/settings"
	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func main() { fx.New(service(settings.Files("submitqueue"))).Run() }

func service(files []string) fx.Option {
	return fx.Options(
		mqfx.Module,
		mqfx.WithConfigFiles(files...),
		mqfx.Handle(
			NewRequestHandler, NewCheckHandler, NewSignalHandler,
			DeadLetters(requestTopic, Accepted), DeadLetters(checkTopic, Checking),
			DeadLetters(landing.MergeTopic, Merging), DeadLetters(landing.SignalTopic, Merging),
		),
		settings.Logging,
		telemetry.Module,
		fx.Provide(settings.Section[Config]("submitqueue", files), newStore),
		fx.Invoke(serve),
	)
}

// newStore keeps requests where the queue keeps its messages.
func newStore(lc fx.Lifecycle, cfg mqfx.Config, p publish.Publisher) (Store, error) {
	if cfg.Backend == mqfx.BackendMemory {
		return NewMemoryStore(p), nil
	}
	db, err := database.Open(lc, cfg, "submit", versions)
	return NewMySQLStore(db, p), err
}

func serve(p web.ServerParams, cfg Config, set tenants.Set, store Store) {
	web.Serve(p, cfg.Address, API{Tenants: set, Store: store}.Routes(p.Logger))
}
