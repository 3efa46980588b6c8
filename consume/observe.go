package consume

import (
	"context"
	"errors"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"
)

// Logging is a middleware that logs the end of every attempt: a line of level
// debug that names the delivery, with its duration and its outcome (see
// [Delivery.Outcome]), or of level warn if it took longer than slow. A slow of 0
// or less never warns, a nil logger logs nothing.
//
// The runner itself logs attempts that fail; this tells of all.
func Logging(logger *zap.Logger, slow time.Duration) Middleware {
	if logger == nil {
		logger = zap.NewNop()
	}
	return Middleware{Name: "logging", Priority: PriorityLogging, Wrap: func(next Handler) Handler {
		s := next.Subscription()
		log := logger.With(zap.String("topic", s.Topic), zap.String("group", s.Group))
		return observe(next, func(d Delivery, err error, took time.Duration) {
			level, message := zap.DebugLevel, "attempt ended"
			if slow > 0 && took > slow {
				level, message = zap.WarnLevel, "attempt was slow"
			}
			if entry := log.Check(level, message); entry != nil {
				entry.Write(append(deliveryFields(d.Message, d.Attempt),
					zap.Duration("duration", took), zap.String("outcome", d.Outcome(err)), zap.Error(err))...)
			}
		})
	}}
}

// Metrics is a middleware that records how long attempts take: the histogram
// consume.handler_time, tagged with topic, consumer_group and outcome (see
// [Delivery.Outcome]), in buckets from 1 ms doubling to 35 minutes. A nil scope
// records nothing.
//
// A [Runner] with a Scope records consume.handle_duration already: of the whole
// attempt, middlewares included, whatever its outcome, and up to two minutes.
// It counts the outcomes as they were written, where this one takes them from
// what the handler returned. Use it to tell slow failures from slow successes,
// or, by another Priority, the handler from the middlewares around it.
func Metrics(scope tally.Scope) Middleware {
	if scope == nil {
		scope = tally.NoopScope
	}
	return Middleware{Name: "metrics", Priority: PriorityMetrics, Wrap: func(next Handler) Handler {
		s := next.Subscription()
		tagged := scope.SubScope("consume").Tagged(map[string]string{"topic": s.Topic, "consumer_group": s.Group})
		buckets := tally.MustMakeExponentialDurationBuckets(time.Millisecond, 2, 22)
		times := make(map[string]tally.Histogram)
		for r := range results {
			times[r.String()] = tagged.Tagged(map[string]string{"outcome": r.String()}).Histogram("handler_time", buckets)
		}
		return observe(next, func(d Delivery, err error, took time.Duration) {
			times[d.Outcome(err)].RecordDuration(took)
		})
	}}
}

// observe calls ended after every attempt, however it ends.
func observe(next Handler, ended func(d Delivery, err error, took time.Duration)) Handler {
	return Wrap(next, func(ctx context.Context, d Delivery) error {
		err := errUnwound
		started := time.Now()
		defer func() { ended(d, err, time.Since(started)) }()
		err = next.Handle(ctx, d)
		return err
	})
}

// errUnwound stands for the result of a handler that did not return, where
// nobody knows yet what is passing through.
var errUnwound = errors.New("handler panicked or ended its goroutine")
