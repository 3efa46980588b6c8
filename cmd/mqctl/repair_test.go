package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

// changing is what time alone changes.
var changing = regexp.MustCompile(`"[a-z_]+_ms":-?\d+`)

// Without --yes and without a terminal to ask at, what destroys changes nothing.
func TestDestroyingNeedsAYes(t *testing.T) {
	f := newFixture(t)
	f.bury("a", "b")
	f.publish(acme, orders, "k", "m")
	f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, 'k', 'gone', 7, 1, 1000, 1000, 0, 0)", billing, orders)
	state := func() []string {
		var docs []string
		for _, listing := range []string{"topics", "groups", "leases", "deadletters"} {
			doc := f.run(listing, "--tenant", "acme", "--json").want(exitDone).stdout
			docs = append(docs, changing.ReplaceAllString(doc, ""))
		}
		return docs
	}
	before := state()
	topic := []string{"--tenant", "acme", "--topic", orders}
	for lost, args := range map[string][]string{
		"12 bytes":            append([]string{"message", "delete", "--key", "k", "--id", "m"}, topic...),
		"1 message. Removed:": append([]string{"group", "drop", "--group", billing}, topic...),
		"the expired lease of tenant acme, topic orders, group billing, partition key k": append([]string{"lease", "release", "--group", billing, "--key", "k"}, topic...),
		"group billing: 1 of ":                           append([]string{"lease", "release", "--group", billing, "--stale"}, topic...),
		"topic orders: 1 message, 0 delivery states and": append([]string{"purge"}, topic...),
		"2; 2 to group billing of topic orders":          {"deadletter", "redrive", "--tenant", "acme", "--topic", dead},
	} {
		r := f.feed("yes\n", args...).want(exitUsage, lost, "repeat it with --yes")
		if strings.Contains(r.stderr, "destroys") {
			t.Errorf("%q: %s", args, r.stderr)
		}
		f.equal("what is stored", before, state())
	}
	// The same with --yes does something, each to what the others leave.
	f.equal("redriven", redrivenDoc{"acme", dead, 2}, decode[redrivenDoc](f.run("deadletter", "redrive", "--yes", "--json", "--tenant", "acme", "--topic", dead).want(exitDone)))
	f.run(append([]string{"lease", "release", "--yes", "--group", billing, "--stale"}, topic...)...).want(exitDone, "1 of 1", "released 1")
	f.equal("deleted", identityDoc{"acme", orders, "k", "m", "deleted"},
		decode[identityDoc](f.run(append([]string{"message", "delete", "--yes", "--json", "--key", "k", "--id", "m"}, topic...)...).want(exitDone)))
	f.equal("purged", 2, decode[purgedDoc](f.run(append([]string{"purge", "--yes", "--json"}, topic...)...).want(exitDone)).Messages)
	f.run(append([]string{"group", "drop", "--yes", "--group", billing}, topic...)...).want(exitDone, "This drops", "dropped")
	f.equal("what is left", 0, f.stored(orders)+f.stored(dead))
}

func TestRedriveOfMany(t *testing.T) {
	f := newFixture(t)
	f.bury("a", "b", "c")
	args := []string{"deadletter", "redrive", "--yes", "--tenant", "acme", "--topic"}
	f.run(append(args, dead, "--group", "audit")...).want(exitNotFound, "has no group audit on any topic")
	f.run(append(args, dead, "--limit", "2", "--rate", "1000")...).want(exitDone, ": 3, at most 2", "redriven 2")
	f.equal("dead letters left", 1, f.stored(dead))
	f.equal("messages", 2, f.stored(orders))
	f.run(append(args, orders)...).want(exitDone, "redriven 0", "mqctl deadletters --tenant acme")
}

func TestPauseAndResume(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	group := []string{"--tenant", "acme", "--topic", orders, "--group", billing}
	f.equal("pause", pausedDoc{"acme", orders, billing, true}, decode[pausedDoc](f.run(append([]string{"pause", "--json"}, group...)...).want(exitDone)))
	f.run("lag", "--tenant", "acme").want(exitDone, "paused")
	f.run(append([]string{"resume"}, group...)...).want(exitDone, "resumed: tenant acme, topic orders, group billing")
	if rows := decode[[]lagRow](f.run("lag", "--tenant", "acme", "--json").want(exitDone)); len(rows) != 1 || rows[0].Paused {
		t.Errorf("%+v", rows)
	}
	for _, command := range []string{"pause", "resume"} {
		f.run(command, "--tenant", "acme", "--topic", orders, "--group", "audit").want(exitNotFound, `"audit"`)
	}
}

func TestDropOfAGroup(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.publish(acme, orders, "k", "m")
	f.check(f.next(sub).Nack(f.ctx, errors.New("no")))
	drop := []string{"group", "drop", "--yes", "--tenant", "acme", "--topic", orders, "--group"}
	f.run(append(drop, "audit")...).want(exitNotFound, "group audit", "not registered")
	f.run(append(drop, billing)...).want(exitDone, "No longer kept for it: 1 message.", "1 delivery state, 1 lease.", "WARNING: it has 1 subscriber alive", "no other group", "mqctl purge", "dropped")
}

// Somebody who works for a group without a heartbeat is warned of as well.
func TestDropOfAGroupWarnsOfLeases(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	f.exec("INSERT INTO queue_offsets VALUES ('acme', ?, '', 'audit', 0, 0, 1000)", orders)
	drop := []string{"group", "drop", "--tenant", "acme", "--topic", orders, "--group", billing}
	if r := f.run(drop...).want(exitUsage, "another group's subscriber, or by mqctl purge"); strings.Contains(r.stderr, "WARNING") {
		t.Errorf("nobody is there: %s", r.stderr)
	}
	f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, 'k', 'billing-1', 7, 1, 1000, 4000000000000, 0, 0)", billing, orders)
	f.run(drop...).want(exitUsage, "WARNING: 1 lease held")
	f.exec("UPDATE queue_partition_leases SET lease_expires_at = 1")
	f.run(drop...).want(exitUsage, "WARNING: owners of 1 lease have vanished")
}

func TestPurgeOfAPartition(t *testing.T) {
	f := newFixture(t)
	f.publish(acme, orders, "k1", "a", "b")
	f.publish(acme, orders, "k2", "c")
	f.publish(globex, orders, "k1", "d")
	got := decode[purgedDoc](f.run("purge", "--yes", "--json", "--tenant", "acme", "--topic", orders, "--key", "k1").want(exitDone))
	f.equal("purged", purgedDoc{Tenant: "acme", Topic: orders, Messages: 2, Leases: got.Leases, Watermarks: got.Watermarks}, got)
	f.equal("messages left", 1, f.stored(orders))
	f.run("purge", "--yes", "--tenant", "acme", "--topic", orders, "--key", "k1").want(exitDone, "0 messages", "purged 0 messages")
}

// Somebody who is asked is told exactly how many messages he is going to lose.
func TestPurgeCountsBeyondWhatListingsDo(t *testing.T) {
	f := newFixture(t)
	var many []backend.Message
	for i := range 1_200 {
		many = append(many, backend.Message{Tenant: acme, Topic: orders, PartitionKey: "k", ID: fmt.Sprint(i)})
	}
	_, err := f.Publish(f.ctx, many...)
	f.check(err)
	f.run("purge", "--tenant", "acme", "--topic", orders).want(exitUsage, ": 1200 messages, ")
}

// A lease that was given back is nobody's to take, and nobody is asked about it.
func TestReleaseOfAFreeLease(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, 'k', 'gone', 7, 1, 1000, 0, 0, 0)", billing, orders)
	release := []string{"lease", "release", "--tenant", "acme", "--topic", orders, "--group", billing}
	f.run(append(release, "--key", "k")...).want(exitNotFound, "is free")
	f.run(append(release, "--stale")...).want(exitDone, "has expired", "released 0")
}

func TestReleaseTakesAPartitionFromItsOwner(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.publish(acme, orders, "k", "m")
	d := f.next(sub)
	f.run("lease", "release", "--yes", "--tenant", "acme", "--topic", orders, "--group", billing, "--key", "k").
		want(exitDone, "an owner that is at work", "released 1")
	if err := d.Ack(f.ctx); !errors.Is(err, backend.ErrLeaseLost) {
		t.Errorf("the owner settles: %v", err)
	}
}
