package mqfx

import (
	"database/sql"
	"errors"
	"os"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/mqfx/internal/harness"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Module is the queue as a part of an application. List it once. It provides
//
//	publish.Publisher  for whoever publishes
//	backend.Queue      the queue itself
//	backend.Admin      pause, resume, redrive and drop groups
//	tenants.Set        the one list of tenants, empty without MQ_TENANTS
//	*mqfx.Health       liveness and readiness, and an http.Handler for both
//	mqfx.Config        the configuration in effect
//
// The publisher publishes for any tenant, listed or not, since publishing needs
// no list; whoever takes tenant names from outside checks them first by
// tenants.Set.Check.
//
// It runs the handlers of [Handle], each within the middlewares of [Middleware].
// It takes a *zap.Logger and a tally.Scope where the application provides them.
// Without a logger it writes to standard error as mq.log says; without a scope
// nothing is counted. Where the application provides a trace.TracerProvider of
// OpenTelemetry, publishing and handling are traced, with a
// propagation.TextMapPropagator if there is one and W3C's otherwise.
var Module = fx.Module("mqfx",
	// First, so that a module listed twice fails here and says so.
	fx.Provide(fx.Annotate(func() listing { return listing{} },
		fx.ResultTags(`name:"mqfx.Module is listed twice; list it once in an application"`))),
	fx.Provide(fx.Annotate(func() module { return module{} }, fx.ResultTags(moduleTag))),
	fx.Provide(newConfig, newTenants, newBackend, newAdmin, newPublisher, newHealth),
	fx.Provide(newTelemetry, newQueue, fx.Private),
	fx.Invoke(run),
)

type listing struct{}

// module is what [Handle] and [Middleware] ask for, so that an application
// without [Module] is refused instead of consuming nothing.
type module struct{}

const moduleTag = `name:"list mqfx.Module in the application"`

var needsModule = fx.Invoke(fx.Annotate(func(module) {}, fx.ParamTags(moduleTag)))

// What an application hands in. The types are the module's own, so that none
// collides with what the application provides.
type (
	givenDB      struct{ *sql.DB }
	givenTenants struct{ tenants.Set }
	givenConfig  struct{ Config }
	givenFiles   struct{ paths []string }
)

// WithDB hands in a database handle in place of mq.dsn. It stays the caller's:
// the module neither closes it nor sizes its pool. Open of backend/mysql makes
// one with the right settings; a handle with wrong ones is refused at start.
func WithDB(db *sql.DB) fx.Option {
	if db == nil {
		return fx.Error(errors.New("mqfx.WithDB: the handle is nil; open it before fx.New, which costs no connection"))
	}
	return fx.Supply(&givenDB{db})
}

// WithTenants hands in the list of tenants in place of MQ_TENANTS.
func WithTenants(set tenants.Set) fx.Option { return fx.Supply(&givenTenants{set}) }

// WithConfig hands in the configuration. No file is read, and neither
// MQ_CONFIG, -config nor MQ_DSN counts. Zero fields mean their defaults.
func WithConfig(c Config) fx.Option { return fx.Supply(&givenConfig{c}) }

// WithConfigFiles names the configuration files, later ones winning, in place
// of config/base.yaml, MQ_CONFIG and -config. MQ_DSN still counts.
func WithConfigFiles(paths ...string) fx.Option { return fx.Supply(&givenFiles{paths}) }

type configParams struct {
	fx.In

	Config  *givenConfig    `optional:"true"`
	Files   *givenFiles     `optional:"true"`
	Harness *harness.Memory `optional:"true"`
}

func newConfig(p configParams) (Config, error) {
	env := process{args: os.Args[1:], lookup: os.LookupEnv}
	if p.Harness != nil {
		env = process{lookup: func(string) (string, bool) { return "", false }}
	}
	c, err := p.read(env)
	if err == nil && p.Harness != nil {
		c.Backend = BackendMemory
		if c.Subscription.PollInterval == backend.DefaultPollInterval {
			c.Subscription.PollInterval = harness.PollInterval
		}
	}
	return c, err
}

func (p configParams) read(env process) (Config, error) {
	switch {
	case p.Config != nil && p.Files != nil:
		return Config{}, errors.New("both mqfx.WithConfig and mqfx.WithConfigFiles are given; use one of them")
	case p.Config != nil:
		c := p.Config.complete()
		if err := c.readDSN(func(string) (string, bool) { return "", false }); err != nil {
			return Config{}, err
		}
		c.derive()
		return c, c.validate()
	case p.Files != nil:
		files := make([]file, len(p.Files.paths))
		for i, path := range p.Files.paths {
			files[i] = file{path: path, source: "mqfx.WithConfigFiles"}
		}
		return env.load(files)
	case p.Harness != nil:
		return DefaultConfig(), nil
	}
	files, err := env.files()
	if err != nil {
		return Config{}, err
	}
	return env.load(files)
}

type tenantsParams struct {
	fx.In

	Given   *givenTenants   `optional:"true"`
	Harness *harness.Memory `optional:"true"`
}

// newTenants is called once in an application, so every part of it goes by the
// same list.
func newTenants(p tenantsParams) (tenants.Set, error) {
	switch {
	case p.Given != nil:
		return p.Given.Set, nil
	case p.Harness != nil:
		return p.Harness.Tenants, nil
	}
	set, err := tenants.FromEnv()
	if errors.Is(err, tenants.ErrEmpty) {
		return tenants.Set{}, nil // whether that is enough is for run to say
	}
	return set, err
}

func newBackend(q *queue) backend.Queue {
	if q.p.Harness != nil {
		return q.p.Harness.Wrap(q)
	}
	return q
}

func newAdmin(q *queue) backend.Admin { return q }

func newPublisher(q backend.Queue, t traces) publish.Publisher { return t.publisher(publish.New(q)) }
