package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/tenants"
)

func loads(owner []int, members int) []int {
	n := make([]int, members)
	for _, m := range owner {
		n[m]++
	}
	return n
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return list
}

func drawNames(t *rapid.T, label string, low, high int) []string {
	list := rapid.SliceOfNDistinct(rapid.StringN(1, 20, 40), low, high, rapid.ID[string]).Draw(t, label)
	slices.Sort(list)
	return list
}

func TestEachTenantIsBalancedToWithinOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := drawNames(t, "keys", 0, 200)
		members := drawNames(t, "members", 1, 12)
		tenant := tenants.ID(rapid.StringN(1, 10, 20).Draw(t, "tenant"))
		n := loads(assign(tenant, keys, members), len(members))
		if slices.Max(n)-slices.Min(n) > 1 {
			t.Fatalf("%d keys over %d members: loads %v", len(keys), len(members), n)
		}
	})
}

// Peers that cap at ceil(keys/members) settle at 3/3/3/3/0 for 12 keys over 5.
func TestNoMemberIsLeftWithoutAShare(t *testing.T) {
	n := loads(assign("tenant", names("key", 12), names("member", 5)), 5)
	slices.Sort(n)
	if want := []int{2, 2, 2, 3, 3}; !slices.Equal(n, want) {
		t.Fatalf("12 keys over 5 members: loads %v, want %v", n, want)
	}
}

func TestOnePartitionTenantsSpreadOverAllMembers(t *testing.T) {
	const tenantCount, memberCount = 1000, 5
	members := names("member", memberCount)
	n := make([]int, memberCount)
	for i := range tenantCount {
		n[assign(tenants.ID(fmt.Sprint("tenant", i)), []string{"only"}, members)[0]]++
	}
	const even = tenantCount / memberCount
	for m, load := range n {
		if load < even*3/4 || load > even*5/4 {
			t.Errorf("member %d has %d of %d tenants, want %d ± 25 %%", m, load, tenantCount, even)
		}
	}
}

// A join has to move keys/members of them, a leave the leaver's. Keeping
// everybody within one moves some more: a few in the worst case, where a key that
// has to give way to another takes the place of a third.
func TestJoinAndLeaveMoveLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := drawNames(t, "keys", 1, 300)
		members := drawNames(t, "members", 2, 12)
		gone := rapid.IntRange(0, len(members)-1).Draw(t, "gone")
		fewer := slices.Delete(slices.Clone(members), gone, gone+1)
		with, without := assign("tenant", keys, members), assign("tenant", keys, fewer)
		moved := 0
		for i := range keys {
			if members[with[i]] != fewer[without[i]] {
				moved++
			}
		}
		least := len(keys)/len(members) + 1
		if moved > 3*least+8 {
			t.Fatalf("%d of %d keys move when one of %d members comes or goes, at least %d have to", moved, len(keys), len(members), least)
		}
	})
}

// On average it is little more than has to be.
func TestJoinAndLeaveMoveLittleOnAverage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = strconv.FormatUint(random.Uint64(), 36)
		}
		slices.Sort(list)
		return list
	}
	moved, least := 0, 0
	for range 2000 {
		keys, members := names(1+random.IntN(100)), names(2+random.IntN(11))
		gone := random.IntN(len(members))
		fewer := slices.Delete(slices.Clone(members), gone, gone+1)
		with, without := assign("tenant", keys, members), assign("tenant", keys, fewer)
		for i := range keys {
			if with[i] == gone {
				least++
			}
			if members[with[i]] != fewer[without[i]] {
				moved++
			}
		}
	}
	if moved > least*3/2 {
		t.Errorf("%d keys move where %d have to", moved, least)
	}
}

func TestAssignmentIsTheSameForEverybody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := drawNames(t, "keys", 0, 50)
		members := drawNames(t, "members", 1, 8)
		if a, b := assign("tenant", keys, members), assign("tenant", slices.Clone(keys), slices.Clone(members)); !slices.Equal(a, b) {
			t.Fatalf("assigned differently: %v and %v", a, b)
		}
	})
}

func TestPreferenceSpreadsEvenly(t *testing.T) {
	members := names("member", 4)
	n := make([]int, len(members))
	for _, key := range names("key", 10_000) {
		n[prefers("tenant", key, members)]++
	}
	for m, load := range n {
		if load < 2300 || load > 2700 {
			t.Errorf("member %d is preferred by %d of 10,000 keys", m, load)
		}
	}
}
