package mqfx

import (
	"maps"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

// Values of [Config].Backend.
const (
	BackendMySQL  = "mysql"
	BackendMemory = "memory"
)

// Defaults and bounds of [Config]. Those of the queue itself are in the
// packages backend and backend/mysql.
const (
	DefaultDrainTimeout = 10 * time.Second
	MaxDrainTimeout     = time.Hour
	MinMaxOpen          = 4
	MaxMaxOpen          = 10_000
	MinMaxLifetime      = time.Second
	MaxMaxLifetime      = 24 * time.Hour
)

// Config is the section mq of the configuration. Durations are written with a
// unit ("45ms", "1m30s"), sizes are bytes.
//
// In the graph it is effective: every value is the one that applies, and the
// password is hidden however it is printed. Given to [WithConfig], a zero field
// means its default; in YAML a default is had by leaving the key out, and an
// explicit zero is an error where zero makes no sense.
type Config struct {
	// Backend is "mysql" (MySQL, MariaDB, Vitess; the default) or "memory",
	// which keeps messages in the process and loses them with it.
	Backend string `yaml:"backend"`

	// DSN of the database, required by the mysql backend unless [WithDB] hands
	// one in. The environment variable MQ_DSN overrides it and DSNFile.
	DSN DSN `yaml:"dsn"`
	// DSNFile names a file that holds the DSN, for mounted secrets. Blanks and
	// line ends around it go. Not together with DSN.
	DSNFile string `yaml:"dsn_file"`
	// TLSCAFile names a file of PEM certificates that the server's is checked
	// against in place of the system's. It is read once, at start, and needs
	// tls=true in the DSN. Default none. Not applied to a handle of [WithDB].
	TLSCAFile string `yaml:"tls_ca_file"`
	// Migrate applies pending schema versions before start. Default false: a
	// missing version refuses the start.
	Migrate bool `yaml:"migrate"`
	// ExternalSchema is for tables that another tool has made without the
	// version table, as on Vitess. Default false. Not together with Migrate.
	ExternalSchema bool `yaml:"external_schema"`
	// ServerIsolation leaves the isolation level to a server that refuses to
	// have it set (vtgate over MariaDB); it must be REPEATABLE READ. Default
	// false. Not applied to a handle of [WithDB].
	ServerIsolation bool `yaml:"server_isolation"`
	// Pool sizes the connection pool. Of a handle of [WithDB] only Reserve
	// applies.
	Pool Pool `yaml:"pool"`

	// Publish limits what may be published.
	Publish Publish `yaml:"publish"`

	// GroupRetention is how long messages wait for a consumer group without
	// subscribers before it is dropped. Default 7 days (168h), 3 h to 10 years.
	// Only the mysql backend drops groups.
	GroupRetention time.Duration `yaml:"group_retention"`

	// Subscription holds the defaults of every handler's subscription.
	Subscription Subscription `yaml:"subscription"`
	// Topics overrides Subscription for single topics; what a topic leaves out
	// it takes from there.
	Topics map[string]Subscription `yaml:"topics"`

	// DrainTimeout is how long a stopping application waits for handlers in
	// flight. It ends earlier where the application's own stop timeout (fx's
	// default is 15 s) would be exceeded. Default 10 s, 1 ms to 1 h.
	DrainTimeout time.Duration `yaml:"drain_timeout"`

	// Log applies where the application provides no *zap.Logger.
	Log Log `yaml:"log"`
	// Metrics says how much the metrics tell apart.
	Metrics Metrics `yaml:"metrics"`
}

// Pool sizes the connection pool.
type Pool struct {
	// MaxOpen connections, all of which may stay open idle. Default 32, 4 to
	// 10,000.
	MaxOpen int `yaml:"max_open"`
	// MaxLifetime of a connection, so that pools follow a failover or a moved
	// name. Default 5 min, 1 s to 24 h.
	MaxLifetime time.Duration `yaml:"max_lifetime"`
	// Reserve is the number of connections for what must not wait until others
	// have done with theirs: renewals of leases, and what PublishTx reads. They
	// come on top of MaxOpen; of a handle of [WithDB] they are kept aside, at
	// most half of those it may open. Default 2, 1 to 16.
	Reserve int `yaml:"reserve"`
}

// Publish limits what may be published.
type Publish struct {
	// MaxPayload in bytes. Default 1 MiB, at most 15 MiB.
	MaxPayload int `yaml:"max_payload"`
	// MaxMetadata in bytes, encoded as JSON. Default 16 KiB, 2 B to 1 MiB.
	MaxMetadata int `yaml:"max_metadata"`
	// MaxBatchRows bounds the messages of one INSERT. Default and at most
	// 1,000. Only the mysql backend batches.
	MaxBatchRows int `yaml:"max_batch_rows"`
	// MaxBatchBytes bounds an INSERT by its size. Default 4 MiB, 64 KiB to
	// 64 MiB.
	MaxBatchBytes int `yaml:"max_batch_bytes"`
	// Timeout ends a publish that the database does not answer. Default 30 s,
	// 10 ms to 1 h.
	Timeout time.Duration `yaml:"timeout"`
}

// Subscription says how a topic is consumed. Meanings and bounds are those of
// [backend.SubscriptionConfig].
type Subscription struct {
	// SubscriberName is this process's name within its groups. Default: host
	// name, process id and a random suffix.
	SubscriberName string `yaml:"subscriber_name"`
	// Ordering is "strict" (default) or "relaxed".
	Ordering string `yaml:"ordering"`
	// Start is "earliest" (default) or "latest".
	Start string `yaml:"start"`
	// MaxInFlight deliveries at once, of which an eighth is kept for tenants that
	// have less than that. Default 128, at most 100,000.
	MaxInFlight int `yaml:"max_in_flight"`
	// BatchSize of a fetch. Default 100, at most 1,000.
	BatchSize int `yaml:"batch_size"`
	// PollInterval while idle. Default 50 ms, 1 ms to 1 min.
	PollInterval time.Duration `yaml:"poll_interval"`
	// VisibilityTimeout of a delivery. Default 30 s, 1 ms to 1 year.
	VisibilityTimeout time.Duration `yaml:"visibility_timeout"`
	// LeaseDuration of a partition. Default 15 s, 50 ms to 1 year.
	LeaseDuration time.Duration `yaml:"lease_duration"`
	// LeaseRenewal is the time between renewals. Default a third of
	// LeaseDuration, and below it.
	LeaseRenewal time.Duration `yaml:"lease_renewal"`
	Retry        Retry         `yaml:"retry"`
	DeadLetter   DeadLetter    `yaml:"dead_letter"`
	// HandlerTimeout ends the context of a handler that has run for so long.
	// Default 0, which is never; else 1 ms to 1 year.
	HandlerTimeout time.Duration `yaml:"handler_timeout" zero:"never"`
	// TenantWeights gives tenants more than an equal share. Default 1 each, at
	// most 1,000. A topic's weights are added to the general ones; those that a
	// handler's code gives replace both.
	TenantWeights map[tenants.ID]int `yaml:"tenant_weights"`
}

// Retry spaces the attempts at a message.
type Retry struct {
	// MaxAttempts, the first included. Default 10, at most 1,000.
	MaxAttempts int `yaml:"max_attempts"`
	// InitialBackoff bounds the first wait. Default 500 ms, at least 1 ms.
	InitialBackoff time.Duration `yaml:"initial_backoff"`
	// MaxBackoff bounds every wait. Default 1 min or InitialBackoff, whichever
	// is longer.
	MaxBackoff time.Duration `yaml:"max_backoff"`
	// Multiplier is 1 to 100. Default 2.
	Multiplier float64 `yaml:"multiplier"`
}

// DeadLetter says where a message goes that is given up.
type DeadLetter struct {
	// Disabled drops it with a log line.
	Disabled bool `yaml:"disabled"`
	// Suffix makes the topic's dead-letter topic. Default "_dlq".
	Suffix string `yaml:"suffix"`
}

// Log describes the logger that is built where the application provides none.
type Log struct {
	// Level is "debug", "info" (default), "warn" or "error".
	Level string `yaml:"level"`
	// Format is "json" (default) or "console".
	Format string `yaml:"format"`
}

// Metrics says how much the metrics tell apart.
type Metrics struct {
	// Tenants is how many tenants, the first of the set, have series of their
	// own; the others share one. Default 0: no tenant is told apart. At most
	// 1,000.
	Tenants int `yaml:"tenants"`
}

// DefaultConfig returns what applies where nothing is configured.
func DefaultConfig() Config {
	c := bareDefaults()
	c.Subscription.derive()
	return c
}

// bareDefaults leaves out the defaults that depend on other values, so that
// these can be read from a configuration first.
func bareDefaults() Config {
	sub := backend.SubscriptionConfig{}.WithDefaults()
	return Config{
		Backend: BackendMySQL,
		Pool: Pool{
			MaxOpen: mysql.DefaultMaxOpenConns, MaxLifetime: mysql.DefaultConnMaxLifetime, Reserve: mysql.DefaultReserveConns,
		},
		Publish: Publish{
			MaxPayload:    mysql.DefaultMaxPayload,
			MaxMetadata:   mysql.DefaultMaxMetadata,
			MaxBatchRows:  mysql.DefaultMaxBatchRows,
			MaxBatchBytes: mysql.DefaultMaxBatchBytes,
			Timeout:       mysql.DefaultPublishTimeout,
		},
		Subscription: Subscription{
			Ordering:          sub.Ordering.String(),
			Start:             sub.Start.String(),
			MaxInFlight:       sub.MaxInFlight,
			BatchSize:         sub.BatchSize,
			PollInterval:      sub.PollInterval,
			VisibilityTimeout: sub.VisibilityTimeout,
			LeaseDuration:     sub.LeaseDuration,
			Retry: Retry{
				MaxAttempts:    sub.Retry.MaxAttempts,
				InitialBackoff: sub.Retry.InitialBackoff,
				Multiplier:     sub.Retry.Multiplier,
			},
			DeadLetter: DeadLetter{Suffix: sub.DeadLetter.Suffix},
		},
		GroupRetention: mysql.DefaultGroupRetention,
		DrainTimeout:   DefaultDrainTimeout,
		Log:            Log{Level: "info", Format: "json"},
	}
}

// complete fills in the defaults of a configuration written in Go, where zero
// means not given.
func (c Config) complete() Config {
	d := bareDefaults()
	setDefault(&c.Backend, d.Backend)
	setDefault(&c.Pool.MaxOpen, d.Pool.MaxOpen)
	setDefault(&c.Pool.MaxLifetime, d.Pool.MaxLifetime)
	setDefault(&c.Pool.Reserve, d.Pool.Reserve)
	setDefault(&c.Publish.MaxPayload, d.Publish.MaxPayload)
	setDefault(&c.Publish.MaxMetadata, d.Publish.MaxMetadata)
	setDefault(&c.Publish.MaxBatchRows, d.Publish.MaxBatchRows)
	setDefault(&c.Publish.MaxBatchBytes, d.Publish.MaxBatchBytes)
	setDefault(&c.Publish.Timeout, d.Publish.Timeout)
	setDefault(&c.GroupRetention, d.GroupRetention)
	setDefault(&c.DrainTimeout, d.DrainTimeout)
	setDefault(&c.Log.Level, d.Log.Level)
	setDefault(&c.Log.Format, d.Log.Format)
	c.Subscription = c.Subscription.over(d.Subscription)

	c.Topics = maps.Clone(c.Topics)
	for topic, s := range c.Topics {
		c.Topics[topic] = s.over(c.Subscription)
	}
	return c
}

// over fills the fields of s that are not given from base.
func (s Subscription) over(base Subscription) Subscription {
	setDefault(&s.SubscriberName, base.SubscriberName)
	setDefault(&s.Ordering, base.Ordering)
	setDefault(&s.Start, base.Start)
	setDefault(&s.MaxInFlight, base.MaxInFlight)
	setDefault(&s.BatchSize, base.BatchSize)
	setDefault(&s.PollInterval, base.PollInterval)
	setDefault(&s.VisibilityTimeout, base.VisibilityTimeout)
	setDefault(&s.LeaseDuration, base.LeaseDuration)
	setDefault(&s.LeaseRenewal, base.LeaseRenewal)
	setDefault(&s.Retry.MaxAttempts, base.Retry.MaxAttempts)
	setDefault(&s.Retry.InitialBackoff, base.Retry.InitialBackoff)
	setDefault(&s.Retry.MaxBackoff, base.Retry.MaxBackoff)
	setDefault(&s.Retry.Multiplier, base.Retry.Multiplier)
	s.DeadLetter.Disabled = s.DeadLetter.Disabled || base.DeadLetter.Disabled
	setDefault(&s.DeadLetter.Suffix, base.DeadLetter.Suffix)
	setDefault(&s.HandlerTimeout, base.HandlerTimeout)
	s.TenantWeights = union(base.TenantWeights, s.TenantWeights)
	return s
}

// union returns a new map; where both have a key, the second wins.
func union(base, more map[tenants.ID]int) map[tenants.ID]int {
	if len(base)+len(more) == 0 {
		return nil
	}
	all := make(map[tenants.ID]int, len(base)+len(more))
	maps.Copy(all, base)
	maps.Copy(all, more)
	return all
}

// derive fills in the defaults that depend on other values.
func (c *Config) derive() {
	c.Subscription.derive()
	for topic, s := range c.Topics {
		s.derive()
		c.Topics[topic] = s
	}
}

func (s *Subscription) derive() {
	setDefault(&s.LeaseRenewal, s.LeaseDuration/3)
	setDefault(&s.Retry.MaxBackoff, max(backend.DefaultMaxBackoff, s.Retry.InitialBackoff))
}

// For returns the effective configuration of a topic's subscription, without
// what its handler adds.
func (c Config) For(topic string) Subscription {
	if s, ok := c.Topics[topic]; ok {
		return s
	}
	return c.Subscription
}

// mysql returns what the mysql backend takes.
func (c Config) mysql() mysql.Config {
	return mysql.Config{
		MaxPayload:     c.Publish.MaxPayload,
		MaxMetadata:    c.Publish.MaxMetadata,
		MaxBatchRows:   c.Publish.MaxBatchRows,
		MaxBatchBytes:  c.Publish.MaxBatchBytes,
		PublishTimeout: c.Publish.Timeout,
		GroupRetention: c.GroupRetention,
		ExternalSchema: c.ExternalSchema,
	}
}

// settings turns s into what the backend takes, which is all but HandlerTimeout.
func (s Subscription) settings() (backend.SubscriptionConfig, error) {
	ordering, err := backend.ParseOrdering(s.Ordering)
	if err != nil {
		return backend.SubscriptionConfig{}, err
	}
	start, err := backend.ParseStartPosition(s.Start)
	if err != nil {
		return backend.SubscriptionConfig{}, err
	}
	return backend.SubscriptionConfig{
		SubscriberName:    s.SubscriberName,
		Ordering:          ordering,
		Start:             start,
		MaxInFlight:       s.MaxInFlight,
		BatchSize:         s.BatchSize,
		PollInterval:      s.PollInterval,
		VisibilityTimeout: s.VisibilityTimeout,
		LeaseDuration:     s.LeaseDuration,
		LeaseRenewal:      s.LeaseRenewal,
		Retry: backend.RetryPolicy{
			MaxAttempts:    s.Retry.MaxAttempts,
			InitialBackoff: s.Retry.InitialBackoff,
			MaxBackoff:     s.Retry.MaxBackoff,
			Multiplier:     s.Retry.Multiplier,
		},
		DeadLetter:    backend.DeadLetterPolicy{Disabled: s.DeadLetter.Disabled, Suffix: s.DeadLetter.Suffix},
		TenantWeights: maps.Clone(s.TenantWeights),
	}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
