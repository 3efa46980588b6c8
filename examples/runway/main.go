// Command runway merges changes into the targets of git repositories and reports
// what became of them.
//
//	MQ_TENANTS=docs,ios go run ./examples/runway -config examples/runway/config/development.yaml
package main

import (
	"net/http"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/examples/internal/settings"
	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/mqfx"
)

func main() { fx.New(service(settings.Files("runway"))).Run() }

func service(files []string) fx.Option {
	return fx.Options(
		mqfx.Module,
		mqfx.WithConfigFiles(files...),
		mqfx.Handle(NewMergeHandler),
		settings.Logging,
		telemetry.Module,
		fx.Provide(settings.Section[Config]("runway", files)),
		fx.Invoke(serve),
	)
}

func serve(p web.ServerParams, cfg Config) {
	p.Lifecycle.Append(fx.StartHook(git.CheckVersion))
	web.Serve(p, cfg.Address, http.NewServeMux())
}
