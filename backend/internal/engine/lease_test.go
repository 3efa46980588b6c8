package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uber-go/tally/v4"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

var errAway = errors.New("the network is away")

// A lease may run out by the owner's clock while its settlement is being
// written. What the transaction says decides then, not the clock.
func TestSettlementUnderWayOutlivesTheLocalLease(t *testing.T) {
	for name, tc := range map[string]struct {
		result engine.Settled
		err    error
		want   error
	}{
		"committed": {result: engine.Settled{Drained: true}},
		"fenced":    {result: engine.Settled{Lost: true}, want: backend.ErrLeaseLost},
		"unknown":   {err: errors.New("invalid connection"), want: backend.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{
					onRenew: func(tenants.ID, []engine.Lease) error { return errAway },
					onSettle: func(tenants.ID, []engine.Settlement) ([]engine.Settled, error) {
						time.Sleep(2 * time.Second)
						return []engine.Settled{tc.result}, tc.err
					},
				}
				s.put("a", "key", 1, 1)
				sub, _ := s.start(t, backend.SubscriptionConfig{LeaseDuration: time.Second}, "a")
				d := <-sub.Deliveries()
				if err := d.Ack(t.Context()); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("Ack: %v, want %v", err, tc.want)
				}
				if err := sub.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Somebody's transaction may hold a row of one tenant for as long as it likes.
func TestRenewalDoesNotWaitForAnotherTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold = time.Hour
		s := &script{onRenew: func(tenant tenants.ID, _ []engine.Lease) error {
			if tenant == "blocked" {
				time.Sleep(hold)
			}
			return nil
		}}
		s.put("blocked", "key", 1, 1)
		s.put("other", "key", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{VisibilityTimeout: 2 * hold}, "blocked", "other")
		out := make(map[tenants.ID]backend.Delivery)
		for range 2 {
			d := <-sub.Deliveries()
			out[d.Message().Tenant] = d
		}
		time.Sleep(hold / 2)
		if err := out["other"].Ack(t.Context()); err != nil {
			t.Error(err)
		}
		if err := out["blocked"].Ack(t.Context()); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("Ack under a lease that was not renewed: %v, want ErrLeaseLost", err)
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What is asked or told of several tenants hangs with the shard of one of them;
// leases are renewed all the same.
func TestRenewalDoesNotWaitForOtherChores(t *testing.T) {
	for name, hang := range map[string]func(*script, func(context.Context) error){
		"control": func(s *script, hangs func(context.Context) error) { s.onControl = hangs },
		"beat": func(s *script, hangs func(context.Context) error) {
			s.onBeat = func(ctx context.Context, _ tenants.ID) error { return hangs(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away := make(chan struct{})
				s := new(script)
				hang(s, func(ctx context.Context) error {
					select {
					case <-away:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				s.put("tenant", "key", 1, 1)
				sub, _ := s.start(t, backend.SubscriptionConfig{VisibilityTimeout: time.Hour}, "tenant")
				d := <-sub.Deliveries()
				time.Sleep(30 * time.Minute)
				if err := d.Ack(t.Context()); err != nil {
					t.Error(err)
				}
				close(away)
				stop(t, sub)
			})
		})
	}
}

// However many tenants a process works for, none has its leases run out for
// want of a turn.
func TestLeasesOfManyTenantsAreRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := tally.NewTestScope("", nil)
		s := &script{scope: scope, onRenew: func(tenants.ID, []engine.Lease) error {
			time.Sleep(2 * time.Millisecond) // a round trip
			return nil
		}}
		list := make([]tenants.ID, 1500)
		for i := range list {
			list[i] = tenants.ID(fmt.Sprintf("tenant-%04d", i))
			s.put(list[i], "key", 1, 1)
		}
		sub, _ := s.start(t, backend.SubscriptionConfig{}, list...)
		time.Sleep(time.Minute) // nobody receives: all stay held
		same(t, "leases held", map[string]float64{"topic": float64(len(list))}, gauges(scope, "leases_held", "topic"))
		same(t, "leases lost", map[string]int64{}, counters(scope, "lease_losses", "topic"))
		stop(t, sub)
	})
}

// The states that came with a lease are all there is to know of earlier
// attempts; an error after that must not cost them.
func TestFailedClaimKeepsTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int32
		s := &script{
			states: map[string][]engine.State{"key": {{Offset: 300, Attempts: 3, Deliveries: 3}}},
			onClaim: func(_ tenants.ID, claims []engine.Claim) error {
				if claims[0].Offset == 300 && failures.Add(1) < 3 {
					return errAway
				}
				return nil
			},
		}
		s.put("a", "key", 300, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{}, "a")
		for range 299 {
			if err := (<-sub.Deliveries()).Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d := <-sub.Deliveries()
		if n := failures.Load(); n < 3 {
			t.Fatalf("claimed %d times, nothing was tested", n)
		}
		if d.Message().Offset != 300 || d.Attempt() != 4 {
			t.Errorf("offset %d, attempt %d, want 300 and 4", d.Message().Offset, d.Attempt())
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A partition on its way to another member is given up even if a message that
// was committed late turns up behind what was read.
func TestHandoverDoesNotWaitForALateMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan []engine.Release, 10)
		s := &script{onRelease: func(_ context.Context, _ tenants.ID, list []engine.Release) error {
			released <- list
			return nil
		}}
		s.put("a", "key", 9, 1)
		late := s.messages["a"]["key"][3]
		s.messages["a"]["key"] = slices.Delete(s.messages["a"]["key"], 3, 4)
		sub, hub := s.start(t, backend.SubscriptionConfig{}, "a")
		d := <-sub.Deliveries()
		s.mu.Lock()
		s.members = []string{"another", "third"} // our own heartbeat is gone, all of it is theirs
		s.mu.Unlock()
		time.Sleep(3 * time.Second) // seen by now
		hub.Notify(engine.Wake{Tenant: "a", Topic: "topic", Key: "key", Offset: late.Offset})
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-released:
		case <-time.After(time.Minute):
			t.Error("not released")
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStopReportsLeasesItCannotRelease(t *testing.T) {
	const given = 10 * time.Second
	for name, tc := range map[string]struct {
		onRelease func(context.Context, tenants.ID, []engine.Release) error
		given     time.Duration // 0: ten seconds
		want      string
		within    time.Duration
	}{
		"no answer, and little time": {
			onRelease: func(ctx context.Context, _ tenants.ID, _ []engine.Release) error {
				<-ctx.Done()
				return ctx.Err()
			},
			given: 4 * time.Second, want: "1 leases could not be released", within: 5 * time.Second, // and a quarter
		},
		"an error": {
			onRelease: func(context.Context, tenants.ID, []engine.Release) error { return errAway },
			want:      "1 leases could not be released", within: time.Second,
		},
		"no answer": {
			onRelease: func(ctx context.Context, _ tenants.ID, _ []engine.Release) error {
				<-ctx.Done()
				return ctx.Err()
			},
			want: "1 leases could not be released", within: 12 * time.Second, // the context's ten, and two
		},
		"a slow answer": {
			onRelease: func(context.Context, tenants.ID, []engine.Release) error {
				time.Sleep(11 * time.Second)
				return nil
			},
			within: 12 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{onRelease: tc.onRelease}
				s.put("a", "key", 2, 1)
				sub, _ := s.start(t, backend.SubscriptionConfig{BatchSize: 1}, "a")
				if err := (<-sub.Deliveries()).Nack(t.Context(), errors.New("not now")); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.given, given))
				defer cancel()
				start := time.Now()
				err := sub.Stop(ctx)
				if took := time.Since(start); took > tc.within {
					t.Errorf("Stop took %v", took)
				}
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("Stop: %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// Of two groups that pass a message at the same moment neither sees that the
// other has. The one that stops last must not leave it behind.
func TestStopCollectsWhatBothGroupsHavePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{keep: true}
		s.put("a", "key", 1, 1)
		sub, _ := s.start(t, backend.SubscriptionConfig{}, "a")
		if err := (<-sub.Deliveries()).Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := sub.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []engine.Passed{{Key: "key", Watermark: 1, Stored: true}}; !slices.Equal(s.collected, want) {
			t.Errorf("collected %v, want %v", s.collected, want)
		}
	})
}

// What a lease row has to tell is who was suspect. A partition may be drained by
// the time its lease is given back, and nobody would remove the row.
func TestReleasedLeaseStaysOnlyForSuspects(t *testing.T) {
	for suspect, forget := range map[uint64]bool{0: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{suspect: suspect}
			s.put("a", "key", 3, 1)
			sub, _ := s.start(t, backend.SubscriptionConfig{MaxInFlight: 1}, "a")
			synctest.Wait() // all are read, none is received
			if err := sub.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if len(s.released) != 1 || s.released[0].Forget != forget {
				t.Errorf("with suspects up to %d released %+v", suspect, s.released)
			}
		})
	}
}
