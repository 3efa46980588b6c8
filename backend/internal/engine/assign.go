package engine

import (
	"hash/fnv"
	"slices"

	"github.com/tenantmq/tenantmq/tenants"
)

// assign spreads the partitions of one tenant over its live subscribers and
// returns, for each key, the index of its member. It is a pure function: all
// subscribers that see the same keys and members agree without talking.
//
// Every key prefers members by rendezvous hashing over (tenant, key, member),
// and a member takes at most floor(keys/members), but for the remainder, of
// which each takes one more at most. So every tenant is balanced to within
// one, tenants of a single partition spread over all members, and a join or a
// leave moves little more than the share that has to move.
//
// members must be sorted and free of repeats, as must keys.
func assign(tenant tenants.ID, keys, members []string) []int {
	owner := make([]int, len(keys))
	if len(members) < 2 {
		return owner
	}
	th := hash64(string(tenant))
	seeds := make([]uint64, len(members))
	for i, m := range members {
		seeds[i] = hash64(m)
	}
	// Keys choose in the order of a hash of their own: nobody is last for
	// being late in the alphabet.
	order := make([]int, len(keys))
	hashes := make([]uint64, len(keys))
	for i, k := range keys {
		order[i], hashes[i] = i, mix(th^hash64(k))
	}
	slices.SortFunc(order, func(a, b int) int {
		if hashes[a] != hashes[b] {
			if hashes[a] < hashes[b] {
				return -1
			}
			return 1
		}
		return a - b
	})
	floor, extra := len(keys)/len(members), len(keys)%len(members)
	load := make([]int, len(members))
	for _, k := range order {
		best, bestScore := -1, uint64(0)
		for m, seed := range seeds {
			if load[m] > floor || load[m] == floor && extra == 0 {
				continue
			}
			if score := mix(hashes[k] ^ seed); best < 0 || score > bestScore {
				best, bestScore = m, score
			}
		}
		if load[best] == floor {
			extra--
		}
		load[best]++
		owner[k] = best
	}
	return owner
}

// prefers returns the member a key prefers when it cannot be seen beside all
// the others: plain rendezvous hashing.
func prefers(tenant tenants.ID, key string, members []string) int {
	h := mix(hash64(string(tenant)) ^ hash64(key))
	best, bestScore := 0, uint64(0)
	for i, m := range members {
		if score := mix(h ^ hash64(m)); i == 0 || score > bestScore {
			best, bestScore = i, score
		}
	}
	return best
}

func hash64(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	return mix(h.Sum64())
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014): FNV alone leaves the high bits
// of short strings alike.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
