package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestListings(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.publish(acme, orders, "k1", "a", "b")
	f.check(f.next(sub).Nack(f.ctx, errors.New("card declined")))
	f.publish(acme, orders, "k2", "c")
	f.check(f.next(sub).Reject(f.ctx, errors.New("no such account")))
	f.publish(globex, orders, "k1", "d")
	f.next(sub) // in flight

	t.Run("topics", func(t *testing.T) {
		got := decode[[]topicRow](f.run("topics", "--all-tenants", "--json").want(exitDone))
		f.equal("topics", []topicRow{
			{"acme", orders, count{N: 2}, count{N: 1}, 1},
			{"acme", dead, count{N: 1}, count{N: 1}, 0},
			{"globex", orders, count{N: 1}, count{N: 1}, 1},
		}, got)
		f.run("topics", "--tenant", "acme").want(exitDone, "TENANT  TOPIC       MESSAGES", "acme    orders_dlq         1")
	})
	t.Run("groups", func(t *testing.T) {
		got := decode[[]groupRow](f.run("groups", "--tenant", "acme", "--json").want(exitDone))
		if len(got) != 1 || got[0].Group != billing || got[0].Lag != (count{N: 2}) || got[0].Subscribers != 1 || time.Since(got[0].SeenAt) > time.Minute {
			t.Errorf("%+v", got)
		}
		f.run("groups", "--tenant", "acme", "--topic", "none").want(exitDone, "nothing to list")
		f.run("subscribers", "--tenant", "acme", "--topic", "none").want(exitDone, "nothing to list; idle subscribers do not show")
	})
	t.Run("lag", func(t *testing.T) {
		got := decode[[]lagRow](f.run("lag", "--all-tenants", "--json", "--group", billing).want(exitDone))
		if len(got) != 2 || got[0].Messages.N != 2 || got[1].Tenant != "globex" || got[1].OldestMS < 0 {
			t.Errorf("%+v", got)
		}
		f.equal("of another group", []lagRow{}, decode[[]lagRow](f.run("lag", "--all-tenants", "--json", "--group", "audit").want(exitDone)))
	})
	t.Run("offsets", func(t *testing.T) {
		got := decode[[]offsetRow](f.run("offsets", "--tenant", "acme", "--topic", orders, "--group", billing, "--json").want(exitDone))
		if len(got) != 1 || got[0].PartitionKey != "k1" || got[0].Pending.N != 2 || got[0].Owner != "billing-1" || got[0].Head >= got[0].Tail {
			t.Errorf("%+v", got)
		}
	})
	t.Run("leases", func(t *testing.T) {
		got := decode[[]leaseRow](f.run("leases", "--all-tenants", "--json").want(exitDone))
		if len(got) < 2 || got[0].State != "held" || got[0].ExpiresInMS <= 0 || !got[0].Pending {
			t.Errorf("%+v", got)
		}
		f.equal("stale leases", []leaseRow{}, decode[[]leaseRow](f.run("leases", "--stale", "--all-tenants", "--json").want(exitDone)))
	})
	t.Run("subscribers", func(t *testing.T) {
		got := decode[[]subscriberRow](f.run("subscribers", "--tenant", "globex", "--json").want(exitDone))
		if len(got) != 1 || got[0].Name != "billing-1" || !got[0].Alive || got[0].Leases.N != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("deadletters", func(t *testing.T) {
		got := decode[[]deadLetterRow](f.run("deadletters", "--tenant", "acme", "--json").want(exitDone))
		if len(got) != 1 || got[0].ID != "c" || got[0].Failure.Group != billing || !strings.Contains(got[0].Failure.LastError, "no such account") {
			t.Errorf("%+v", got)
		}
		f.run("deadletters", "--tenant", "acme", "--topic", dead).want(exitDone, "no such account", "ago")
	})
	t.Run("message list", func(t *testing.T) {
		args := []string{"message", "list", "--tenant", "acme", "--topic", orders, "--key", "k1", "--json", "--limit", "1"}
		first := decode[[]messageRow](f.run(args...).want(exitDone))
		if len(first) != 1 || first[0].ID != "a" || time.Since(first[0].PublishedAt) > time.Minute {
			t.Fatalf("%+v", first)
		}
		second := decode[[]messageRow](f.run(append(args, "--after", first[0].Cursor)...).want(exitDone))
		if len(second) != 1 || second[0].ID != "b" || second[0].Offset <= first[0].Offset {
			t.Errorf("%+v", second)
		}
	})
	t.Run("top", func(t *testing.T) {
		got := decode[frame](f.run("top", "--all-tenants", "--json", "--interval", "100ms").want(exitDone))
		if len(got.Tenants) != 2 || got.Tenants[0].Tenant != "acme" || got.Tenants[0].DeadLetters.N != 1 || got.Tenants[0].Lag.N != 2 ||
			got.Tenants[0].ChangePerS == nil || *got.Tenants[0].ChangePerS != 0 || got.Tenants[1].Subscribers != 1 {
			t.Errorf("%+v", got)
		}
		f.run("top", "--all-tenants", "--interval", "100ms").want(exitDone, "CHANGE/S", "+0.0")
	})
	t.Run("a tenant that is not in the list", func(t *testing.T) {
		f.run("lag", "--tenant", "acne").want(exitDone, "tenant acne is not in MQ_TENANTS")
	})
}

// Pages are complete and do not overlap, and the table tells how to go on.
func TestCursorGoesOnBehindItsRow(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.stop(sub) // the group stays registered
	for i := range 5 {
		f.publish(acme, orders, fmt.Sprintf("k%d \x1b[31m%d", i, i), "m")
	}
	var keys []string
	for after, pages := "", 0; pages < 3; pages++ {
		args := []string{"offsets", "--tenant", "acme", "--limit", "2"}
		if after != "" {
			args = append(args, "--after", after)
		}
		rows := decode[[]offsetRow](f.run(append(args, "--json")...).want(exitDone))
		for _, r := range rows {
			keys = append(keys, r.PartitionKey)
		}
		after = rows[len(rows)-1].Cursor
		if text := "--after " + after; pages < 2 {
			f.run(args...).want(exitDone, "2 rows of tenant acme", text)
		} else if r := f.run(args...).want(exitDone); strings.Contains(r.stderr, "--after") {
			t.Errorf("the last page tells how to go on: %s", r.stderr)
		}
	}
	f.equal("partitions", []string{"k0 \x1b[31m0", "k1 \x1b[31m1", "k2 \x1b[31m2", "k3 \x1b[31m3", "k4 \x1b[31m4"}, keys)
}

func TestStaleLeasesAreListedAndReleased(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe()) // the group stays registered
	for i, key := range []string{"k1", "k2"} {
		f.publish(acme, orders, key, "a")
		f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, ?, 'gone', 7, 1, 1000, 1000, ?, 0)", billing, orders, key, i)
	}

	args := []string{"--tenant", "acme", "--topic", orders, "--group", billing}
	if got := decode[[]leaseRow](f.run(append([]string{"leases", "--stale", "--json"}, args...)...).want(exitDone)); len(got) != 2 || got[0].State != "expired" || !got[0].Pending {
		t.Fatalf("%+v", got)
	}
	f.run(append([]string{"leases", "--stale"}, args...)...).want(exitDone, "expired", "waits", "gone")
	release := append([]string{"lease", "release", "--yes", "--json"}, args...)
	f.equal("one", releasedDoc{"acme", orders, billing, 1}, decode[releasedDoc](f.run(append(release, "--key", "k1")...).want(exitDone)))
	f.run(append(release, "--key", "k3")...).want(exitNotFound, "see mqctl leases")
	f.equal("the rest", releasedDoc{"acme", orders, billing, 1}, decode[releasedDoc](f.run(append(release, "--stale")...).want(exitDone)))
	f.equal("stale leases left", []leaseRow{}, decode[[]leaseRow](f.run(append([]string{"leases", "--stale", "--json"}, args...)...).want(exitDone)))
}
