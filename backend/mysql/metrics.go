package mysql

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// metrics of a queue; docs/metrics.md says what they mean.
type metrics struct {
	published                              *engine.Published
	retries, fences, raises, groupsExpired tally.Counter
	errors                                 [classes]tally.Counter
}

func newMetrics(scope tally.Scope, set tenants.Set, tagged int) metrics {
	m := metrics{
		published:     engine.NewPublished(scope, set, tagged),
		retries:       scope.Counter("transaction_retries"),
		fences:        scope.Counter("publish_fence_retries"),
		raises:        scope.Counter("offset_counter_raises"),
		groupsExpired: scope.Counter("groups_expired"),
	}
	for c := range classes {
		m.errors[c] = scope.Tagged(map[string]string{"class": c.String()}).Counter("database_errors")
	}
	return m
}

// countError counts an error if it comes from the database. It is called where
// statements and transactions end, once for each time that one is run: what is
// repeated and succeeds then counts as well.
func (m *metrics) countError(err error) {
	if err == nil {
		return
	}
	c := classify(err)
	_, answered := errors.AsType[*mysql.MySQLError](err)
	switch {
	case c == classPermanent && !answered: // our own, as a fence
	case errors.Is(err, context.Canceled) && !answered: // somebody has stopped waiting
	default:
		m.errors[c].Inc(1)
	}
}

// countCall counts what a caller has published.
func (m *metrics) countCall(c *call) {
	m.published.Count(len(c.rows), func(i int) engine.Receipt {
		return engine.Receipt{Tenant: c.tenant, Topic: c.rows[i].topic, Duplicate: c.receipts[i].Duplicate}
	})
}
