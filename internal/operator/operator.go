package operator

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

// Bounds of [Operator.CountTo].
const (
	DefaultCountTo = 1_000
	MaxCountTo     = 1_000_000
)

// Operator looks at the tables of a queue and repairs them. Its methods are safe
// for concurrent use; its fields are to be set before.
type Operator struct {
	// CountTo is up to how many things every [Count] is exact, which bounds what
	// it reads. Default 1,000, 1 to 1,000,000.
	CountTo int
	// MaxPayload is what the services publish at most, in bytes, for
	// [Operator.Doctor] to hold the server's packet size against. Default that of
	// [mysql.Config].
	MaxPayload int

	db   *sql.DB
	q    *mysql.Queue
	page int // dead letters put in order at a time
	// checked: CheckSchema has passed.
	checked atomic.Bool
}

// New makes an operator of the queue q on the pool db, which should be q's own
// or one of the same settings: see [mysql.Open]. It does no I/O, and closes
// neither.
func New(db *sql.DB, q *mysql.Queue) *Operator {
	return &Operator{db: db, q: q, page: redrivePage}
}

// Count is the number of things of some kind.
type Count struct {
	N int
	// AtLeast: counting has ended at N.
	AtLeast bool
}

// String is "12", or "1000+" for at least so many.
func (c Count) String() string {
	if c.AtLeast {
		return strconv.Itoa(c.N) + "+"
	}
	return strconv.Itoa(c.N)
}

// Of is the count in words: "1 message", "1000+ messages".
func (c Count) Of(noun string) string {
	if c == (Count{N: 1}) {
		return "1 " + noun
	}
	return c.String() + " " + noun + "s"
}

// words is [Count.Of] of what was counted in full.
func words(n int, noun string) string { return Count{N: n}.Of(noun) }

// count is n of up to bound+1 things that were looked at.
func count(n, bound int) Count { return Count{min(n, bound), n > bound} }

// plus is exact up to a bound as well.
func (c Count) plus(d Count, bound int) Count {
	sum := count(c.N+d.N, bound)
	sum.AtLeast = sum.AtLeast || c.AtLeast || d.AtLeast
	return sum
}

// countTo is CountTo or its default.
func (o *Operator) countTo() int {
	if o.CountTo == 0 {
		return DefaultCountTo
	}
	return o.CountTo
}

// check returns the first of the errors found with a call's arguments.
func (o *Operator) check(errs ...error) error {
	for _, err := range append([]error{checkCountTo(o.countTo())}, errs...) {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkCountTo(n int) error {
	if n < 1 || n > MaxCountTo {
		return &backend.FieldError{Field: "count to", Value: strconv.Itoa(n), Rule: fmt.Sprintf("want 1 to %d", MaxCountTo)}
	}
	return nil
}

// unless checks a name that may be left out.
func unless(name string, check func(string) error) error {
	if name == "" {
		return nil
	}
	return check(name)
}

// Bounds of [Page.Limit].
const (
	DefaultLimit = 100
	MaxLimit     = 10_000
)

// Page says which rows of a listing are wanted.
type Page struct {
	Topic string // "" for all
	Group string // "" for all; nothing to DeadLetters
	// StaleOnly leaves leases out that are held or were given back. Only Leases
	// reads it, and looks at all of a group's leases for it.
	StaleOnly bool
	After     Cursor // the zero value is the beginning
	// Limit of rows. Default 100, 1 to 10,000.
	Limit int
}

// Cursor is a place in a listing: that of the row whose Cursor method returns
// it. The next page begins behind it. A page of fewer rows than its limit is the
// last.
type Cursor struct {
	Topic, Group, PartitionKey string
	Name                       string // of a subscriber
	Offset                     uint64 // of a dead letter
}

func (p Page) limit() int {
	if p.Limit == 0 {
		return DefaultLimit
	}
	return p.Limit
}

func (p Page) check() error {
	if n := p.limit(); n < 1 || n > MaxLimit {
		return &backend.FieldError{Field: "limit", Value: strconv.Itoa(n), Rule: fmt.Sprintf("want 1 to %d", MaxLimit)}
	}
	if err := unless(p.Topic, backend.CheckTopic); err != nil {
		return err
	}
	return unless(p.Group, backend.CheckGroup)
}

// pair is a group of a topic.
type pair struct{ topic, group string }

// pairs lists the groups and topics with rows in a table, by one of the
// statements that step from one to the next: those wanted by a page, from its
// cursor on.
func (o *Operator) pairs(ctx context.Context, tenant tenants.ID, statement string, p Page) ([]pair, error) {
	at := p.After
	if p.Topic != "" && p.Group != "" {
		return []pair{{p.Topic, p.Group}}, nil
	}
	var list []pair
	if at.Group != "" {
		list = append(list, pair{at.Topic, at.Group})
	}
	for last := (pair{at.Topic, at.Group}); ; {
		q := newQuery(statement, string(tenant))
		if last.group != "" {
			q.add(pairBehind, last.group, last.group, last.topic)
		}
		next, found, err := readOne(ctx, o.db, q.add(nextPair), func(n *pair) []any { return []any{&n.group, &n.topic} })
		if err != nil {
			return nil, fmt.Errorf("list the groups of tenant %q: %w", tenant, err)
		}
		if !found {
			break
		}
		last = next
		list = append(list, next)
	}
	return slices.DeleteFunc(list, func(n pair) bool {
		return p.Topic != "" && n.topic != p.Topic || p.Group != "" && n.group != p.Group
	}), nil
}

// within is the key to go on behind in a pair: that of the cursor, if the cursor
// is there.
func (c Cursor) within(n pair, key string) string {
	if c.Topic == n.topic && c.Group == n.group {
		return key
	}
	return ""
}

// wrap says what was being done, and where.
func wrap(doing string, tenant tenants.ID, topic string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of tenant %q, topic %q: %w", doing, tenant, topic, err)
}

func fromMillis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// at is a point in time as the tables have it.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
