package main

import (
	"strings"
	"testing"
)

func TestATenantIsOnOneShard(t *testing.T) {
	tenants := []account{{queue: "fx", accepted: 2}, {queue: "river", accepted: 3}}
	keyspace := func() []shard {
		return []shard{
			{"-80", map[string]holding{"fx": {groups: 4, requests: 2, messages: 8}}},
			{"80-", map[string]holding{"river": {groups: 4, requests: 3, messages: 12}}},
		}
	}
	for name, c := range map[string]struct {
		spoil func([]shard)
		want  string // "" for no error
	}{
		"placed": {func([]shard) {}, ""},
		"queue's rows elsewhere": {func(list []shard) {
			list[0].holds["river"], list[1].holds["river"] = holding{groups: 4}, holding{requests: 3, messages: 12}
		}, "tenant river"},
		"one row elsewhere":   {func(list []shard) { list[0].holds["river"] = holding{requests: 1} }, "tenant river"},
		"missing":             {func(list []shard) { delete(list[1].holds, "river"); list[1].holds["fx2"] = holding{} }, "tenant river"},
		"request of no group": {func(list []shard) { list[1].holds["river"] = holding{requests: 3} }, "tenant river"},
		"request lost":        {func(list []shard) { list[1].holds["river"] = holding{groups: 4, requests: 2} }, "tenant river"},
		"all on one": {func(list []shard) {
			list[0].holds["river"] = list[1].holds["river"]
			delete(list[1].holds, "river")
		}, "shard 80-"},
	} {
		list := keyspace()
		c.spoil(list)
		err := placed(list, tenants, Plan{Shards: 2})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "tenant fx")):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// A replay's tenants are where they are.
	if err := placed(append(keyspace(), shard{name: "empty"}), tenants, Plan{}); err != nil {
		t.Error(err)
	}
}
