// Package tenants holds the one tenant identity, and the one list of tenants a
// process serves, parsed once from MQ_TENANTS.
package tenants

import (
	"errors"
	"fmt"
	"strings"
)

// MaxLength is the longest ID in bytes.
const MaxLength = 255

var (
	// ErrInvalid is wrapped by every error of [ID.Validate], [Parse],
	// [FromEnv] and [New].
	ErrInvalid = errors.New("invalid tenant")
	// ErrEmpty is returned by [Parse], [FromEnv] and [New] for a list without
	// names. It wraps ErrInvalid; a process that serves no tenant of its own
	// tells it apart from a mistake in the list.
	ErrEmpty = fmt.Errorf("%w list: it has no names; list at least one, separated by commas", ErrInvalid)
	// ErrUnknownTenant is wrapped by [Set.Check].
	ErrUnknownTenant = errors.New("unknown tenant")
)

// ID names a tenant: the unit of isolation and the shard key. The queue
// attaches no other meaning to it.
type ID string

// Validate accepts ASCII 0x01 to 0x7F, 1 to [MaxLength] bytes, without a
// trailing space. The error wraps [ErrInvalid].
func (id ID) Validate() error {
	if fault := id.fault(); fault != "" {
		return fmt.Errorf("%w%s", ErrInvalid, fault)
	}
	return nil
}

// fault says what is wrong with id and what to do about it, ready to follow
// "invalid tenant" or "at position 2"; it is empty for a valid one.
func (id ID) fault() string {
	i := strings.IndexFunc(string(id), func(r rune) bool { return r == 0 || r > 0x7F })
	switch {
	case id == "":
		return ": the name is empty; give one or drop the entry"
	case len(id) > MaxLength:
		return fmt.Sprintf(" %s: %d bytes; at most %d", quote(id), len(id), MaxLength)
	case i >= 0:
		return fmt.Sprintf(" %s: byte 0x%02X at index %d; only ASCII 0x01 to 0x7F", quote(id), id[i], i)
	case id[len(id)-1] == ' ':
		return fmt.Sprintf(" %s: trailing space; drop it, the database compares as if it were absent", quote(id))
	}
	return ""
}

// quote shows a name in an error: printable, and short whatever was given.
func quote(id ID) string {
	const limit = 40
	if len(id) > limit {
		return fmt.Sprintf("%q", strings.ToValidUTF8(string(id[:limit]), "")+"…")
	}
	return fmt.Sprintf("%q", string(id))
}
