// Package tenants holds the one tenant identity, and the one list of tenants a
// process serves, parsed once from MQ_TENANTS.
package tenants

import "errors"

// EnvVar is the environment variable that lists a process's tenants.
const EnvVar = "MQ_TENANTS"

// MaxLength is the longest ID in bytes.
const MaxLength = 255

// ErrUnknownTenant is wrapped by [Set.Check].
var ErrUnknownTenant = errors.New("unknown tenant")

// ErrInvalid is wrapped by [Parse], [FromEnv] and [New].
var ErrInvalid = errors.New("invalid tenant list")

// ID names a tenant: the unit of isolation and the shard key. ASCII 0x01 to
// 0x7F, 1 to 255 bytes, no trailing space.
type ID string

// Set is an immutable list of tenants. The zero value is empty.
type Set struct{ ids []ID }

// IDs returns a copy, in the order given.
func (s Set) IDs() []ID { return append([]ID(nil), s.ids...) }
