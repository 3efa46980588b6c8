package engine

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/tenants"
)

// metrics carry the topic and the group as tags. Tenants and partitions are
// not tags: their number is not bounded.
type metrics struct {
	scope                                    tally.Scope
	fetched, delivered, settledMessages      tally.Counter
	deadLetters, lapses, leaseLosses, stalls tally.Counter
	leases                                   tally.Gauge
	settleTime                               tally.Timer
	outcomes                                 map[string]tally.Counter
}

func newMetrics(scope tally.Scope, topic, group string) metrics {
	scope = scope.Tagged(map[string]string{"topic": topic, "consumer_group": group})
	m := metrics{
		scope:           scope,
		fetched:         scope.Counter("messages_fetched"),
		delivered:       scope.Counter("messages_delivered"),
		settledMessages: scope.Counter("messages_passed"),
		deadLetters:     scope.Counter("messages_dead_lettered"),
		lapses:          scope.Counter("visibility_timeouts"),
		leaseLosses:     scope.Counter("lease_losses"),
		stalls:          scope.Counter("watermark_stalls"),
		leases:          scope.Gauge("leases_held"),
		settleTime:      scope.Timer("settle_latency"),
		outcomes:        make(map[string]tally.Counter),
	}
	for _, outcome := range []string{"ack", "nack", "postpone", "reject"} {
		m.outcomes[outcome] = scope.Tagged(map[string]string{"outcome": outcome}).Counter("messages_settled")
	}
	return m
}

func (s *Subscription) count(outcome string) { s.met.outcomes[outcome].Inc(1) }

// faults reports the errors of the store: each kind of work at most once in
// faultInterval, with the number of those kept back.
type faults struct {
	log   *zap.Logger
	scope tally.Scope
	mu    sync.Mutex
	last  map[string]*fault
}

type fault struct {
	at     time.Time
	hidden int
}

const faultInterval = 10 * time.Second

func (f *faults) report(work string, tenant tenants.ID, err error) {
	f.scope.Tagged(map[string]string{"work": work}).Counter("store_errors").Inc(1)
	f.mu.Lock()
	if f.last == nil {
		f.last = make(map[string]*fault)
	}
	last := f.last[work]
	if last == nil {
		last = &fault{}
		f.last[work] = last
	}
	now := time.Now()
	if now.Sub(last.at) < faultInterval {
		last.hidden++
		f.mu.Unlock()
		return
	}
	hidden := last.hidden
	last.at, last.hidden = now, 0
	f.mu.Unlock()
	fields := []zap.Field{zap.String("work", work), zap.Error(err)}
	if tenant != "" {
		fields = append(fields, zap.String("tenant", string(tenant)))
	}
	if hidden > 0 {
		fields = append(fields, zap.Int("more_like_it", hidden))
	}
	f.log.Warn("store error, retrying", fields...)
}

// pause is how long to wait after an error of the store.
func (f *faults) pause() time.Duration {
	return 50*time.Millisecond + rand.N(200*time.Millisecond)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
