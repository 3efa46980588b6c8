package mysql

import (
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Defaults of [Config].
const (
	DefaultMaxPayload     = 1 << 20
	DefaultMaxMetadata    = 16 << 10
	DefaultMaxBatchRows   = 1_000
	DefaultMaxBatchBytes  = 4 << 20
	DefaultPublishTimeout = 30 * time.Second
	DefaultGroupRetention = 7 * 24 * time.Hour
)

// Bounds of [Config].
const (
	// MaxMaxPayload stays below the 16 MiB of a MEDIUMBLOB.
	MaxMaxPayload     = 15 << 20
	MaxMaxMetadata    = 1 << 20
	MaxMaxBatchRows   = 1_000
	MinMaxBatchBytes  = 64 << 10
	MaxMaxBatchBytes  = 64 << 20
	MinPublishTimeout = 10 * time.Millisecond
	MaxPublishTimeout = time.Hour
	// MinGroupRetention leaves room for the hourly renewal of registrations.
	MinGroupRetention = 3 * time.Hour
	MaxGroupRetention = 10 * 365 * 24 * time.Hour
)

// Config of a [Queue]. The zero value of every field means its default.
type Config struct {
	// MaxPayload bounds a message's payload in bytes. Default 1 MiB, at most
	// 15 MiB. Verify checks that the server's max_allowed_packet carries twice
	// as much, since escaping can double a binary payload.
	MaxPayload int
	// MaxMetadata bounds a message's metadata in bytes, encoded as JSON.
	// Default 16 KiB, at most 1 MiB.
	MaxMetadata int

	// MaxBatchRows bounds the messages of one INSERT, and how many messages of
	// concurrent Publish calls share a transaction. One call always is one
	// transaction per tenant. Default and at most 1,000.
	MaxBatchRows int
	// MaxBatchBytes bounds an INSERT in the same way by its escaped size in
	// bytes. A single message may exceed it. Default 4 MiB, 64 KiB to 64 MiB.
	MaxBatchBytes int
	// PublishTimeout ends a publish transaction, repetitions included, that
	// the database does not answer. It is independent of the callers'
	// contexts, who share the transaction. Default 30 s, 10 ms to 1 h.
	PublishTimeout time.Duration

	// GroupRetention is how long messages wait for a consumer group without
	// subscribers. Then it is dropped, as by DropGroup, by the subscribers of the
	// topic's other groups. Default 7 days, 3 h to 10 years.
	GroupRetention time.Duration

	// ExternalSchema is for tables that another tool has made from [Schema]
	// without the version table, as on Vitess: Verify looks for tables and
	// columns in place of the version.
	ExternalSchema bool
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxPayload, DefaultMaxPayload)
	setDefault(&c.MaxMetadata, DefaultMaxMetadata)
	setDefault(&c.MaxBatchRows, DefaultMaxBatchRows)
	setDefault(&c.MaxBatchBytes, DefaultMaxBatchBytes)
	setDefault(&c.PublishTimeout, DefaultPublishTimeout)
	setDefault(&c.GroupRetention, DefaultGroupRetention)
	return c
}

func (c Config) validate() error {
	for _, err := range []error{
		checkRange("max payload", c.MaxPayload, 1, MaxMaxPayload),
		checkRange("max metadata", c.MaxMetadata, 2, MaxMaxMetadata),
		checkRange("max batch rows", c.MaxBatchRows, 1, MaxMaxBatchRows),
		checkRange("max batch bytes", c.MaxBatchBytes, MinMaxBatchBytes, MaxMaxBatchBytes),
		checkRange("publish timeout", c.PublishTimeout, MinPublishTimeout, MaxPublishTimeout),
		checkRange("group retention", c.GroupRetention, MinGroupRetention, MaxGroupRetention),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func checkRange[T int | time.Duration](field string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	return &backend.FieldError{Field: field, Value: fmt.Sprint(v), Rule: fmt.Sprintf("want %v to %v", low, high)}
}
