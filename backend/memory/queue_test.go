package memory

import (
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestTenantMetricsAreBounded(t *testing.T) {
	for n, want := range map[int]string{
		-1: "tenant metrics -1: want 0 to 1000", 1001: "tenant metrics 1001: want 0 to 1000", 1000: "<nil>",
	} {
		if _, err := NewQueue(Params{TenantMetrics: n}); fmt.Sprint(err) != want {
			t.Errorf("%d: %v, want %s", n, err, want)
		}
	}
}

// A flood of dead letters is logged up to a rate.
func TestQueueLogsSoManyLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		set, err := tenants.New(tenant)
		if err != nil {
			t.Fatal(err)
		}
		q, err := NewQueue(Params{Tenants: set, Logger: zap.New(core)})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := q.Subscribe(t.Context(), changes, backend.SubscriptionConfig{Group: "group"})
		if err != nil {
			t.Fatal(err)
		}
		const flood = 100
		for i := range flood {
			if _, err := q.Publish(t.Context(), change(fmt.Sprint(i), "m")); err != nil {
				t.Fatal(err)
			}
		}
		for range flood {
			if err := (<-sub.Deliveries()).Reject(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := lines.FilterMessage("message dead-lettered").Len(); n == 0 || n >= flood {
			t.Errorf("%d lines of %d dead letters in no time", n, flood)
		}
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
