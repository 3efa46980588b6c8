package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

type engineLease = engine.Lease

// stop ends a subscription and takes back what is out.
func stop(t *testing.T, sub *engine.Subscription) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sub.Stop(ctx) // it counts what is cut off
}

// counters returns those of a name that are not zero, by the value of a tag.
func counters(scope tally.TestScope, name, tag string) map[string]int64 {
	values := make(map[string]int64)
	for _, c := range scope.Snapshot().Counters() {
		if c.Name() == name && c.Value() != 0 {
			values[c.Tags()[tag]] += c.Value()
		}
	}
	return values
}

// gauges returns those of a name by the value of a tag.
func gauges(scope tally.TestScope, name, tag string) map[string]float64 {
	values := make(map[string]float64)
	for _, g := range scope.Snapshot().Gauges() {
		if g.Name() == name {
			values[g.Tags()[tag]] = g.Value()
		}
	}
	return values
}

func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// What a handler says counts once it is durable, and as what it said.
func TestOutcomesCountOnceDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := tally.NewTestScope("", nil)
		release := make(chan struct{})
		s := &script{scope: scope, onSettle: func(tenants.ID, []engine.Settlement) ([]engine.Settled, error) {
			<-release
			return nil, nil
		}}
		keys := []string{"ack", "ack too", "nack", "postpone", "reject"}
		for _, key := range keys {
			s.put("a", key, 1, 1)
		}
		sub, _ := s.start(t, backend.SubscriptionConfig{Retry: backend.RetryPolicy{InitialBackoff: time.Hour, MaxBackoff: time.Hour}}, "a")
		var handlers sync.WaitGroup
		for range keys {
			d := <-sub.Deliveries()
			handlers.Go(func() {
				switch d.Message().PartitionKey {
				case "nack":
					_ = d.Nack(context.Background(), errors.New("no"))
				case "postpone":
					_ = d.Postpone(context.Background(), time.Hour)
				case "reject":
					_ = d.Reject(context.Background(), errors.New("never"))
				default:
					_ = d.Ack(context.Background())
				}
			})
		}
		synctest.Wait()
		same(t, "outcomes under way", map[string]int64{}, counters(scope, "messages_settled", "outcome"))
		close(release)
		handlers.Wait()
		want := map[string]int64{"ack": 2, "nack": 1, "postpone": 1, "reject": 1}
		same(t, "outcomes", want, counters(scope, "messages_settled", "outcome"))
		same(t, "dead letters", map[string]int64{"": 1}, counters(scope, "messages_dead_lettered", "tenant"))
		same(t, "deliveries", map[string]int64{"topic": 5}, counters(scope, "messages_delivered", "topic"))
		stop(t, sub)
		same(t, "leases held in the end", map[string]float64{"group": 0}, gauges(scope, "leases_held", "consumer_group"))
	})
}

// Only the first few tenants of the set have a tag of their own.
func TestTenantsShareATagBeyondTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := tally.NewTestScope("", nil)
		s := &script{scope: scope, named: 2, onLag: func(list []tenants.ID) (map[tenants.ID]backend.Lag, error) {
			lags := make(map[tenants.ID]backend.Lag)
			for i, id := range slices.Sorted(slices.Values(list)) {
				lags[id] = backend.Lag{Messages: 10, Oldest: time.Duration(i+1) * time.Minute}
			}
			return lags, nil
		}}
		list := []tenants.ID{"d", "b", "a", "c"}
		for _, id := range list {
			s.put(id, "key", 1, 1)
		}
		sub, _ := s.start(t, backend.SubscriptionConfig{VisibilityTimeout: time.Hour}, list...)
		var out []backend.Delivery
		for range list {
			out = append(out, <-sub.Deliveries())
		}
		time.Sleep(16 * time.Second)
		same(t, "deliveries", map[string]int64{"d": 1, "b": 1, "other": 2}, counters(scope, "messages_delivered", "tenant"))
		same(t, "lag: the sum", map[string]float64{"d": 10, "b": 10, "other": 20}, gauges(scope, "lag_messages", "tenant"))
		same(t, "age: the oldest", map[string]float64{"d": 240, "b": 120, "other": 180}, gauges(scope, "lag_oldest_seconds", "tenant"))
		for _, d := range out {
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
		same(t, "outcomes", map[string]int64{"d": 1, "b": 1, "other": 2}, counters(scope, "messages_settled", "tenant"))
		time.Sleep(16 * time.Second)
		nothing := map[string]float64{"d": 0, "b": 0, "other": 0}
		same(t, "lag of nothing", nothing, gauges(scope, "lag_messages", "tenant"))
		same(t, "age of nothing", nothing, gauges(scope, "lag_oldest_seconds", "tenant"))
		stop(t, sub)
	})
}

// However many tenants are behind, a round reads a bounded number of them, and
// none is left out for ever.
func TestLagIsReadOfSoManyTenantsARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, perRound = 450, 200
		scope := tally.NewTestScope("", nil)
		var mu sync.Mutex
		read := make(map[tenants.ID]int)
		s := &script{scope: scope, keep: true, onLag: func(list []tenants.ID) (map[tenants.ID]backend.Lag, error) {
			mu.Lock()
			defer mu.Unlock()
			lags := make(map[tenants.ID]backend.Lag)
			for _, id := range list {
				read[id]++
				lags[id] = backend.Lag{Messages: 1}
			}
			return lags, nil
		}}
		var list []tenants.ID
		for i := range all {
			list = append(list, tenants.ID(fmt.Sprintf("tenant-%03d", i)))
			s.put(list[i], "key", 1, 1)
		}
		sub, _ := s.start(t, backend.SubscriptionConfig{}, list...)
		time.Sleep(5 * time.Second) // nobody receives: all stay at work
		for round := 1; round <= 3; round++ {
			time.Sleep(15 * time.Second)
			want := min(round*perRound, all)
			mu.Lock()
			same(t, "tenants read", want, len(read))
			most := slices.Max(slices.Collect(maps.Values(read)))
			mu.Unlock()
			if round < 3 && most > 1 {
				t.Errorf("round %d: a tenant was read %d times before others had their turn", round, most)
			}
			same(t, "lag", map[string]float64{"topic": float64(want)}, gauges(scope, "lag_messages", "topic"))
		}
		stop(t, sub)
		same(t, "lag in the end", map[string]float64{"topic": 0}, gauges(scope, "lag_messages", "topic"))
	})
}

func TestNobodyReadsTheLagWithoutMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unwanted := func() { t.Error("the store was asked") }
		s := &script{
			onLag: func([]tenants.ID) (map[tenants.ID]backend.Lag, error) { unwanted(); return nil, nil },
			onNow: func() (time.Time, error) { unwanted(); return time.Now(), nil },
		}
		s.put("a", "key", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{VisibilityTimeout: time.Hour}, "a")
		<-sub.Deliveries()
		time.Sleep(time.Minute)
		stop(t, sub)
	})
}

// PublishedAt is of the store's clock, which need not be that of the process.
func TestAgeAtDeliveryGoesByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead, age = time.Hour, 3 * time.Second
		scope := tally.NewTestScope("", nil)
		s := &script{scope: scope, onNow: func() (time.Time, error) { return time.Now().Add(ahead), nil }}
		sub, hub := s.start(t, backend.SubscriptionConfig{}, "a")
		synctest.Wait() // the clock was read
		s.put("a", "key", 1, 1)
		s.messages["a"]["key"][0].PublishedAt = time.Now().Add(ahead - age)
		hub.Notify(engine.Wake{Tenant: "a", Topic: "topic", Key: "key", Offset: 1})
		d := <-sub.Deliveries()
		if err := d.Nack(t.Context(), errors.New("again")); err != nil {
			t.Fatal(err)
		}
		if d = <-sub.Deliveries(); d.Attempt() != 2 {
			t.Fatalf("attempt %d", d.Attempt())
		}
		synctest.Wait()
		var ages []time.Duration
		for _, h := range scope.Snapshot().Histograms() {
			if h.Name() != "delivery_age" {
				continue
			}
			for upTo, n := range h.Durations() {
				ages = append(ages, slices.Repeat([]time.Duration{upTo}, int(n))...)
			}
		}
		same(t, "ages, by their buckets' bounds", []time.Duration{4096 * time.Millisecond}, ages) // of the first attempt alone
		stop(t, sub)
	})
}

// A metric may be looked for before the first error.
func TestStoreErrorsCountByWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := tally.NewTestScope("", nil)
		s := &script{
			scope:   scope,
			onLag:   func([]tenants.ID) (map[tenants.ID]backend.Lag, error) { return nil, errAway },
			onRenew: func(tenants.ID, []engine.Lease) error { return errAway },
		}
		s.put("a", "key", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{VisibilityTimeout: time.Hour, LeaseDuration: time.Minute}, "a")
		<-sub.Deliveries()
		time.Sleep(16 * time.Second)
		errs := counters(scope, "store_errors", "work")
		if errs["lag"] != 1 || errs["renew"] != 0 {
			t.Errorf("errors after the first lag was read: %v", errs)
		}
		time.Sleep(10 * time.Second)
		if errs := counters(scope, "store_errors", "work"); errs["renew"] == 0 {
			t.Errorf("errors after a renewal was due: %v", errs)
		}
		stop(t, sub)
	})
}

func TestPublishedCountsByTopicAndTenant(t *testing.T) {
	scope := tally.NewTestScope("", nil)
	set, err := tenants.New("a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	p := engine.NewPublished(scope, set, 1)
	list := []engine.Receipt{
		{"a", "x", false}, {"a", "x", true}, {"a", "y", false}, {"b", "y", false}, {"c", "y", false}, {"unknown", "y", false}, {"a", "x", false},
	}
	p.Count(len(list), func(i int) engine.Receipt { return list[i] })
	p.Count(0, nil)
	same(t, "by topic", map[string]int64{"x": 2, "y": 4}, counters(scope, "messages_published", "topic"))
	same(t, "by tenant", map[string]int64{"a": 3, "other": 3}, counters(scope, "messages_published", "tenant"))
	same(t, "repeats", map[string]int64{"x": 1}, counters(scope, "publish_duplicates", "topic"))
}

// An application may make topics up as it goes.
func TestPublishedBoundsItsTopics(t *testing.T) {
	scope := tally.NewTestScope("", nil)
	p := engine.NewPublished(scope, tenants.Set{}, 0)
	const topics = 10_010
	for i := range topics {
		p.Count(1, func(int) engine.Receipt { return engine.Receipt{Tenant: "a", Topic: fmt.Sprint(i)} })
	}
	same(t, "beyond the bound", int64(10), counters(scope, "messages_published", "topic")["other"])
}

func TestQuietLogsSoManyLinesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		log := engine.Quiet(zap.New(core))
		flood := func() {
			for i := range 10 * engine.MaxLines {
				log.Warn("lease lost", zap.Int("partition", i))
				log.With(zap.String("tenant", "a")).Warn("lease lost")
			}
			log.Warn("message dead-lettered")
		}
		flood()
		same(t, "of a flood", engine.MaxLines, lines.FilterMessage("lease lost").Len())
		same(t, "beside it", 1, lines.FilterMessage("message dead-lettered").Len())
		time.Sleep(time.Second)
		flood()
		same(t, "a second later", 2*engine.MaxLines, lines.FilterMessage("lease lost").Len())
	})
}
