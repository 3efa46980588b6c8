package memory

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Config of a [Queue]. The zero value of every field means its default.
type Config struct {
	// MaxPayload bounds a message's payload in bytes. Default 1 MiB, at most
	// 15 MiB.
	MaxPayload int
	// MaxMetadata bounds a message's metadata in bytes, encoded as JSON.
	// Default 16 KiB, at most 1 MiB.
	MaxMetadata int

	// GroupRetention is how long messages wait for a consumer group without
	// subscribers. Then it is dropped, as by DropGroup, by the subscribers of the
	// topic's other groups. Default 7 days, 3 h to 10 years.
	GroupRetention time.Duration

	// Now is the queue's clock. It must be safe for concurrent use, must not go
	// backwards, and must not call the queue, which is locked meanwhile. Default
	// time.Now.
	Now func() time.Time
}

// Defaults and bounds of [Config] are those of the MySQL backend, so that what
// works on one works on the other.
const (
	DefaultMaxPayload     = 1 << 20
	DefaultMaxMetadata    = 16 << 10
	DefaultGroupRetention = 7 * 24 * time.Hour

	MaxMaxPayload     = 15 << 20
	MaxMaxMetadata    = 1 << 20
	MinGroupRetention = 3 * time.Hour
	MaxGroupRetention = 10 * 365 * 24 * time.Hour
)

func (c Config) withDefaults() Config {
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.MaxMetadata = cmp.Or(c.MaxMetadata, DefaultMaxMetadata)
	c.GroupRetention = cmp.Or(c.GroupRetention, DefaultGroupRetention)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	return cmp.Or(
		checkRange("max payload", c.MaxPayload, 1, MaxMaxPayload),
		checkRange("max metadata", c.MaxMetadata, 2, MaxMaxMetadata),
		checkRange("group retention", c.GroupRetention, MinGroupRetention, MaxGroupRetention),
	)
}

func checkRange[T int | time.Duration](field string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	return &backend.FieldError{Field: field, Value: fmt.Sprint(v), Rule: fmt.Sprintf("want %v to %v", low, high)}
}
