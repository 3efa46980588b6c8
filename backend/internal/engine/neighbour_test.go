package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// A lock somewhere in one partition fails every settlement it is part of, and
// only after a wait. That must cost no other partition its lease.
func TestBlockedSettlementCostsItsNeighboursNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20
		alone, together, over := 0, 0, false
		s := new(script)
		s.onSettle = func(_ tenants.ID, list []engine.Settlement) ([]engine.Settled, error) {
			time.Sleep(50 * time.Millisecond) // others gather
			s.mu.Lock()
			defer s.mu.Unlock()
			if over {
				return nil, nil
			}
			if !slices.ContainsFunc(list, func(p engine.Settlement) bool { return p.Key == "blocked" }) {
				return nil, nil
			}
			if len(list) == 1 {
				alone++
			} else {
				together++
			}
			s.mu.Unlock()
			time.Sleep(5 * time.Second)
			s.mu.Lock()
			return nil, errors.New("lock wait timeout exceeded")
		}
		for i := range keys {
			s.put("a", fmt.Sprint("key-", i), 1000, 1)
		}
		s.put("a", "blocked", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{}, "a")
		var handlers sync.WaitGroup
		end := time.Now().Add(time.Minute)
		for time.Now().Before(end) {
			d := <-sub.Deliveries()
			handlers.Go(func() {
				time.Sleep(100 * time.Millisecond)
				if err := d.Ack(t.Context()); err != nil && d.Message().PartitionKey != "blocked" {
					t.Error(err)
				}
			})
		}
		s.mu.Lock()
		if together > 1 || alone < 3 {
			t.Errorf("the blocked partition was settled together with others %d times, and %d times alone", together, alone)
		}
		over = true
		s.mu.Unlock()
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		handlers.Wait()
	})
}

// Prefetched payloads are bounded, whatever the number of partitions and the
// size of a batch.
func TestPrefetchIsBoundedInBytes(t *testing.T) {
	for name, tc := range map[string]struct{ keys, each, inFlight int }{
		"many partitions":   {400, 4, 1},
		"large batches":     {3, 200, 100},
		"one after another": {400, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(script)
				for i := range tc.keys {
					s.put("a", fmt.Sprint("key-", i), tc.each, 1<<20)
				}
				sub, _ := s.start(t, backend.SubscriptionConfig{MaxInFlight: tc.inFlight}, "a")
				time.Sleep(time.Minute) // as long as it likes
				s.mu.Lock()
				fetched := s.fetched
				s.mu.Unlock()
				if limit := 72 << 20; fetched > limit {
					t.Errorf("%d MiB fetched for nobody", fetched>>20)
				}
				if fetched == 0 {
					t.Error("nothing fetched")
				}
				if err := sub.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A listing that is slow to read keeps the server busy; the pace follows.
func TestSlowListingsTakeAFifthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 100 * time.Millisecond
		s := &script{onDiscover: func() error { time.Sleep(slow); return nil }}
		sub, _ := s.start(t, backend.SubscriptionConfig{}, "a")
		time.Sleep(time.Minute)
		s.mu.Lock()
		spent := time.Duration(s.discovers) * slow
		s.mu.Unlock()
		if spent > time.Minute/5+slow || spent < time.Minute/6 {
			t.Errorf("%v of a minute spent on listings", spent)
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Messages that only wait for another group are in every listing. They must not
// keep a new one, on the last page, from being found.
func TestNewMessageIsFoundBehindManyDrainedPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drained = 15_000
		s := &script{keep: true}
		for i := range drained {
			s.put("a", fmt.Sprintf("key-%06d", i), 1, 1)
		}
		sub, _ := s.start(t, backend.SubscriptionConfig{MaxInFlight: 4000}, "a")
		for range drained {
			d := <-sub.Deliveries()
			go d.Ack(t.Context()) //nolint:errcheck // what counts is that all are delivered once
		}
		time.Sleep(3 * time.Second) // let it come to rest
		s.mu.Lock()
		before := s.discovers
		s.mu.Unlock()
		const news = 4
		start := time.Now()
		for i := range news { // at a page a poll each would take 8 of them
			want := fmt.Sprint("z", i)
			s.put("a", want, 1, 1)
			d := <-sub.Deliveries()
			if key := d.Message().PartitionKey; key != want {
				t.Fatalf("%q delivered once more", key)
			}
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.mu.Lock()
		listings := s.discovers - before
		s.mu.Unlock()
		if waited := time.Since(start); waited > news*100*time.Millisecond || listings > news*2*(drained/2000+1) {
			t.Errorf("found after %v and %d listings", waited, listings)
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
