package engine

import (
	"slices"
	"time"

	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/tenants"
)

// metrics of one subscription; docs/metrics.md says what they mean. They carry
// the topic and the group as tags, and some the tenant, if asked for. Partitions
// are no tag: their number is not bounded.
type metrics struct {
	scope                                   tally.Scope
	fetched, lapses, leaseLosses, stalls    tally.Counter
	leases                                  tally.Gauge
	deliveryAge, settleDuration, pollRounds tally.Histogram
	fetchBatch, settleBatch                 tally.Histogram

	labels   labels
	byTenant map[string]*tenantMetrics // by label; complete, and only read
}

// tenantMetrics are those that may carry the tenant.
type tenantMetrics struct {
	delivered, deadLetters tally.Counter
	settled                [verbs]tally.Counter
	lag, oldest            tally.Gauge
}

// Buckets of histograms. A service moves within a few of them, so that a factor
// of two tells.
var (
	workBuckets  = tally.MustMakeExponentialDurationBuckets(500*time.Microsecond, 2, 17) // to 33 s
	ageBuckets   = tally.MustMakeExponentialDurationBuckets(time.Millisecond, 2, 23)     // to 70 min
	batchBuckets = tally.ValueBuckets{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

func newMetrics(o Options) metrics {
	scope := o.Scope.Tagged(map[string]string{"topic": o.Topic, "consumer_group": o.Config.Group})
	m := metrics{
		scope:          scope,
		fetched:        scope.Counter("messages_fetched"),
		lapses:         scope.Counter("visibility_timeouts"),
		leaseLosses:    scope.Counter("lease_losses"),
		stalls:         scope.Counter("watermark_stalls"),
		leases:         scope.Gauge("leases_held"),
		deliveryAge:    scope.Histogram("delivery_age", ageBuckets),
		settleDuration: scope.Histogram("settle_duration", workBuckets),
		pollRounds:     scope.Histogram("poll_duration", workBuckets),
		fetchBatch:     scope.Histogram("fetch_batch_size", batchBuckets),
		settleBatch:    scope.Histogram("settle_batch_size", batchBuckets),
		labels:         newLabels(o.Tenants, o.TenantMetrics),
		byTenant:       make(map[string]*tenantMetrics),
	}
	for _, label := range m.labels.all() {
		m.byTenant[label] = newTenantMetrics(m.labels.scope(scope, label))
	}
	return m
}

func newTenantMetrics(scope tally.Scope) *tenantMetrics {
	m := &tenantMetrics{
		delivered:   scope.Counter("messages_delivered"),
		deadLetters: scope.Counter("messages_dead_lettered"),
		lag:         scope.Gauge("lag_messages"),
		oldest:      scope.Gauge("lag_oldest_seconds"),
	}
	for v := range verbs {
		m.settled[v] = scope.Tagged(map[string]string{"outcome": v.String()}).Counter("messages_settled")
	}
	return m
}

// of returns a tenant's metrics. Whoever counts often keeps them.
func (m *metrics) of(id tenants.ID) *tenantMetrics { return m.byTenant[m.labels.of(id)] }

// labels decide on the tag "tenant": absent unless asked for, then the name of
// the first few tenants, and one value for all the others, so that the number of
// series is bounded whatever the number of tenants.
type labels struct {
	named map[tenants.ID]struct{}
	list  []string
	on    bool
}

// otherTenants is a value beside the names of tenants. One that is called so
// shares it.
const otherTenants = "other"

// newLabels names the first n tenants of a set.
func newLabels(set tenants.Set, n int) labels {
	l := labels{named: make(map[tenants.ID]struct{}, n), on: n > 0}
	if !l.on {
		return l
	}
	ids := set.IDs()
	for _, id := range ids[:min(n, len(ids))] {
		l.named[id] = struct{}{}
		if id != otherTenants {
			l.list = append(l.list, string(id))
		}
	}
	return l
}

// of returns the value of the tag; "" is none.
func (l labels) of(id tenants.ID) string {
	if !l.on {
		return ""
	}
	if _, ok := l.named[id]; ok {
		return string(id)
	}
	return otherTenants
}

// all lists every value.
func (l labels) all() []string {
	if !l.on {
		return []string{""}
	}
	return append(slices.Clip(l.list), otherTenants)
}

func (l labels) scope(scope tally.Scope, label string) tally.Scope {
	if !l.on {
		return scope
	}
	return scope.Tagged(map[string]string{"tenant": label})
}
