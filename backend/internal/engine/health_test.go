package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestHealthOfAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		s := &script{onDiscover: func() error {
			if away.Load() {
				return errAway
			}
			return nil
		}}
		sub, _ := s.start(t, backend.SubscriptionConfig{PollInterval: 100 * time.Millisecond}, "a")
		defer stop(t, sub)
		recent := func(at time.Time) bool { return time.Since(at) <= time.Second }
		time.Sleep(10 * time.Second)
		if h := sub.Health(); !recent(h.TickedAt) || !recent(h.PolledAt) || h.PollInterval != 100*time.Millisecond || h.Topic != "topic" || h.Group != "group" {
			t.Errorf("while the store is well: %+v", h)
		}
		away.Store(true)
		left := time.Now()
		time.Sleep(10 * time.Second)
		if h := sub.Health(); !recent(h.TickedAt) || h.PolledAt.After(left) {
			t.Errorf("10 s after the store has left: %+v; want ticks, and none that succeeded", h)
		}
		away.Store(false)
		time.Sleep(time.Second)
		if h := sub.Health(); !recent(h.PolledAt) {
			t.Errorf("after the store is back: %+v", h)
		}
	})
}

func TestHealthOfAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		s := &script{onDiscover: func() error {
			if hang.Load() {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		sub, _ := s.start(t, backend.SubscriptionConfig{}, "a")
		defer stop(t, sub)
		hang.Store(true)
		begun := time.Now()
		time.Sleep(30 * time.Second)
		if h := sub.Health(); h.TickedAt.After(begun.Add(time.Second)) || h.PolledAt.After(begun.Add(time.Second)) {
			t.Errorf("30 s into a look for work that does not end: %+v", h)
		}
		hang.Store(false)
		time.Sleep(time.Minute)
		if h := sub.Health(); time.Since(h.TickedAt) > time.Second {
			t.Errorf("after it has ended: %+v", h)
		}
	})
}

// Leases of 12 s that are renewed every 4 s have 8 s left when renewal is due,
// and are overdue when half of that is gone.
func TestHealthCountsLeasesThatAreOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{onRenew: func(tenant tenants.ID, _ []engineLease) error {
			if tenant == "a" {
				return errAway
			}
			return nil
		}}
		s.put("a", "key1", 1, 1)
		s.put("a", "key2", 1, 1)
		s.put("b", "key", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{LeaseDuration: 12 * time.Second, LeaseRenewal: 4 * time.Second, VisibilityTimeout: time.Hour}, "a", "b")
		defer stop(t, sub)
		for range 3 {
			<-sub.Deliveries()
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{7900 * time.Millisecond, 0}, {300 * time.Millisecond, 2}, {5 * time.Second, 0}} { // at last they are lost
			time.Sleep(step.after)
			if h := sub.Health(); h.OverdueLeases != step.want {
				t.Errorf("%+v, want %d overdue leases", h, step.want)
			}
		}
	})
}
