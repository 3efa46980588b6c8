package operator

import (
	"errors"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

func TestEstimateIsWhatWouldBeDone(t *testing.T) {
	f := newFixture(t)
	litter(f, orders)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, 'billing', ?, 'key-00000', 's', 1, 1, 1, 1, 0, 0)", string(acme), orders)
	f.exec("UPDATE queue_messages SET original_topic = 'x', failed_group = IF(MOD(`offset`, 2), 'billing', 'audit') WHERE id IN ('1-5', '1-6')")
	f.CountTo = 10_000
	for _, c := range []struct {
		scope Scope
		want  Estimate
	}{
		{Scope{}, Estimate{
			Messages: Count{N: 2_100}, DeadLetters: Count{N: 2}, States: Count{N: 2_800}, Leases: Count{N: 302}, Held: Count{N: 300}, Stale: Count{N: 2}, Groups: 2,
		}},
		{Scope{Group: billing}, Estimate{
			Messages: Count{N: 2_100}, DeadLetters: Count{N: f.number("SELECT COUNT(*) FROM queue_messages WHERE failed_group = 'billing'")},
			States: Count{N: 2_100}, Leases: Count{N: 1}, Stale: Count{N: 1}, Groups: 1,
		}},
		{Scope{PartitionKey: "key-00000"}, Estimate{
			Messages: Count{N: 1_502}, States: Count{N: 1_502}, Leases: Count{N: 2}, Held: Count{N: 1}, Stale: Count{N: 1}, Groups: 2,
		}},
	} {
		got := must[Estimate](f)(f.Estimate(f.ctx, acme, orders, c.scope))
		f.want("estimate", c.want, got)
	}
	f.CountTo = 100
	got := must[Estimate](f)(f.Estimate(f.ctx, acme, orders, Scope{}))
	f.want("beyond the bound", Estimate{
		Messages: Count{100, true}, DeadLetters: Count{2, true}, States: Count{100, true}, Leases: Count{100, true}, Held: Count{100, true}, Stale: Count{N: 2}, Groups: 2,
	}, got)
	f.want("of a higher bound", Count{N: 2_100}, must[Estimate](f)(f.Estimate(f.ctx, acme, orders, Scope{CountTo: MaxCountTo})).Messages)
	if _, err := f.Estimate(f.ctx, acme, orders, Scope{CountTo: MaxCountTo + 1}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("beyond all bounds: %v", err)
	}
	if _, err := f.Estimate(f.ctx, acme, orders, Scope{Group: "g "}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a bad group: %v", err)
	}
}
