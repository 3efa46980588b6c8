package tenants

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// EnvVar is the environment variable that lists a process's tenants.
const EnvVar = "MQ_TENANTS"

// Set is an immutable list of tenants, safe for concurrent use. The zero value
// is empty.
type Set struct {
	ids      []ID
	position map[ID]int // 1-based, as in errors
}

// New makes a set of one or more valid, different tenants. The error names the
// 1-based position and the value; it wraps [ErrInvalid], and [ErrEmpty] when
// there are none.
func New(ids ...ID) (Set, error) {
	if len(ids) == 0 {
		return Set{}, ErrEmpty
	}
	s := Set{ids: slices.Clone(ids), position: make(map[ID]int, len(ids))}
	for i, id := range s.ids {
		if fault := id.fault(); fault != "" {
			return Set{}, fmt.Errorf("%w at position %d%s", ErrInvalid, i+1, fault)
		}
		if first, ok := s.position[id]; ok {
			return Set{}, fmt.Errorf("%w at position %d %s: the same as position %d; list each once", ErrInvalid, i+1, quote(id), first)
		}
		s.position[id] = i + 1
	}
	return s, nil
}

// Parse reads a comma-separated list. Spaces, tabs and line ends around a name
// are dropped. Errors are those of [New].
func Parse(list string) (Set, error) {
	const blanks = " \t\r\n"
	if strings.Trim(list, blanks) == "" {
		return Set{}, ErrEmpty
	}
	names := strings.Split(list, ",")
	ids := make([]ID, len(names))
	for i, name := range names {
		ids[i] = ID(strings.Trim(name, blanks))
	}
	return New(ids...)
}

// FromEnv parses MQ_TENANTS. Errors are those of [Parse] and name the variable;
// one that is not set counts as an empty list.
func FromEnv() (Set, error) {
	s, err := Parse(os.Getenv(EnvVar))
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", EnvVar, err)
	}
	return s, nil
}

// IDs returns a copy, in the order given.
func (s Set) IDs() []ID { return slices.Clone(s.ids) }

// Len returns the number of tenants.
func (s Set) Len() int { return len(s.ids) }

// Contains reports whether id is in the set.
func (s Set) Contains(id ID) bool {
	_, ok := s.position[id]
	return ok
}

// Check returns nil for a tenant of the set. The error wraps
// [ErrUnknownTenant] and names the tenant and the list.
func (s Set) Check(id ID) error {
	if s.Contains(id) {
		return nil
	}
	return fmt.Errorf("%w %s: %s lists %s", ErrUnknownTenant, quote(id), EnvVar, s)
}

// String shows the list as errors and logs do: its first names and how many
// more there are.
func (s Set) String() string {
	const limit = 8
	if len(s.ids) == 0 {
		return "no tenants"
	}
	var b strings.Builder
	for i, id := range s.ids[:min(len(s.ids), limit)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(id))
	}
	if more := len(s.ids) - limit; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
