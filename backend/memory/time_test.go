package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Hours pass at once in a bubble: backoffs, postponements, and the leases of a
// process that vanished.
func TestTimeIsThatOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, tables := oneTenant(t), newTables()
		begin := time.Now()
		process := func() (*Queue, backend.Subscription) {
			t.Helper()
			q, err := open(Params{Tenants: set}, tables)
			if err != nil {
				t.Fatal(err)
			}
			sub, err := q.Subscribe(t.Context(), changes, backend.SubscriptionConfig{Group: "landers", LeaseDuration: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return q, sub
		}
		next := func(sub backend.Subscription, attempt int, after time.Duration) backend.Delivery {
			t.Helper()
			d := <-sub.Deliveries()
			if passed := time.Since(begin); passed < after || passed > after+2*time.Minute {
				t.Errorf("attempt %d after %v, want it soon after %v", attempt, passed, after)
			}
			if d.Attempt() != attempt {
				t.Errorf("attempt %d, want %d", d.Attempt(), attempt)
			}
			return d
		}

		first, sub := process()
		if _, err := first.Publish(t.Context(), change("key", "a")); err != nil {
			t.Fatal(err)
		}
		d := next(sub, 1, 0)
		if at := d.Message().PublishedAt; !at.Equal(begin) {
			t.Errorf("published at %v, want %v", at, begin)
		}
		if err := d.Postpone(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		d = next(sub, 1, time.Hour) // a postponement spends none

		// The process vanishes: its lease has to run out.
		first.severed.Store(true)
		second, sub := process()
		if err := next(sub, 2, time.Hour).Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Ack(t.Context()); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("ack by the process that vanished: %v, want ErrLeaseLost", err)
		}
		for _, q := range []*Queue{first, second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := q.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
			cancel()
		}
		if n := second.Stats(); n.Messages+n.States+n.Watermarks+n.Leases > 0 {
			t.Errorf("rows left: %+v", n)
		}
	})
}
