package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// Results come in the order of the tenants, however long each takes, and the
// database is asked about a few at a time.
func TestTenantsAreLookedAtConcurrentlyAndKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []tenants.ID
		for i := range 10 {
			ids = append(ids, tenants.ID(fmt.Sprint(i)))
		}
		var now, most atomic.Int32
		got, err := each(t.Context(), ids, func(_ context.Context, id tenants.ID) (tenants.ID, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Duration('9'-id[0]+1) * time.Second)
			return id, nil
		})
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("%v, %v", got, err)
		}
		if most.Load() != atOnce {
			t.Errorf("%d at a time, want %d", most.Load(), atOnce)
		}
	})
}

func TestTenantThatFailsEndsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		_, err := each(t.Context(), []tenants.ID{"a", "b"}, func(ctx context.Context, id tenants.ID) (int, error) {
			if id == "b" {
				return 0, down
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if !errors.Is(err, down) {
			t.Errorf("%v", err)
		}
	})
}
