//go:build vitess

package mysql

import (
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/tenants"
)

// vtgate puts together what the shards answer in no order of its own, and cuts
// it at the limit. Still a tenant's rows come in one piece, and all of them but
// the last one's: that is what engine.Store promises.
func TestVitessAPageCutsItsLastTenantOnly(t *testing.T) {
	f := newVitessFixture(t)
	s := f.store(groupA, "one")
	const keys = 5
	var list []tenants.ID
	for i := range 12 {
		list = append(list, tenants.ID(fmt.Sprintf("page-%d", i)))
		for k := range keys {
			mustPublish(t, f.q, message(list[i], topicA, fmt.Sprint(k), 1))
		}
	}
	for limit := 1; limit <= len(list)*keys+1; limit++ {
		rows, err := s.Discover(t.Context(), list, "", limit)
		if err != nil {
			t.Fatal(err)
		}
		if want := min(limit, len(list)*keys); len(rows) != want {
			t.Fatalf("limit %d: %d rows, want %d", limit, len(rows), want)
		}
		seen := make(map[tenants.ID]int)
		for i, r := range rows {
			if r.Key != fmt.Sprint(seen[r.Tenant]) {
				t.Fatalf("limit %d: row %d is %s of %s, after %d of its rows", limit, i, r.Key, r.Tenant, seen[r.Tenant])
			}
			if i > 0 && rows[i-1].Tenant != r.Tenant && (seen[r.Tenant] > 0 || seen[rows[i-1].Tenant] != keys) {
				t.Fatalf("limit %d: row %d is of %s, after %d rows of %s", limit, i, r.Tenant, seen[rows[i-1].Tenant], rows[i-1].Tenant)
			}
			seen[r.Tenant]++
		}
	}
}
