package consume

import (
	"time"

	"github.com/uber-go/tally/v4"
)

// result is what became of a delivery: each ends in exactly one. The first are
// the verbs that were carried out, of the same number.
type result int

const (
	acked       = result(ack)
	nacked      = result(nack)
	postponed   = result(postpone)
	rejected    = result(reject)
	interrupted = result(iota) // by a stop; unsettled
	leaseLost                  // another attempt had been or will be made; unsettled
	unwritten                  // the queue could not write the outcome
	results
)

func (r result) String() string {
	return [results]string{"ack", "nack", "postpone", "reject", "interrupted", "lease_lost", "settle_failed"}[r]
}

// metrics of one handler, tagged with its topic and consumer_group:
//
//	consume.deliveries       counter, also tagged with the outcome
//	consume.handle_duration  histogram, time in the handler
//	consume.in_flight        gauge, deliveries being handled or settled
//
// There is no tenant among the tags: tenants are many.
type metrics struct {
	deliveries [results]tally.Counter
	duration   tally.Histogram
	inFlight   tally.Gauge
}

func newMetrics(scope tally.Scope, topic, group string) metrics {
	scope = scope.SubScope("consume").Tagged(map[string]string{"topic": topic, "consumer_group": group})
	m := metrics{
		duration: scope.Histogram("handle_duration", tally.MustMakeExponentialDurationBuckets(time.Millisecond, 2, 18)),
		inFlight: scope.Gauge("in_flight"),
	}
	for r := range results {
		m.deliveries[r] = scope.Tagged(map[string]string{"outcome": r.String()}).Counter("deliveries")
	}
	return m
}
