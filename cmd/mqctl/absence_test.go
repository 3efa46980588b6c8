package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A mistyped name is told from one that has nothing to show, on standard error:
// what a program reads stays a document.
func TestMistypedNameIsTold(t *testing.T) {
	f := newFixture(t)
	f.bury("a")
	f.publish(acme, orders, "k", "m")

	const nothing = "has nothing stored, neither messages nor groups"
	for _, command := range []string{
		"topics", "groups", "offsets", "leases", "leases --stale", "subscribers", "deadletters", "lag", "top --interval 100ms", "doctor",
		"message list --topic orders --key k",
	} {
		args := strings.Fields(command)
		f.run(append(args, "--tenant", "acmee")...).want(exitDone, "tenant acmee "+nothing, "tenant acmee is not in MQ_TENANTS")
		r := f.run(append(args, "--tenant", "acmee", "--json")...).want(exitDone)
		if !json.Valid([]byte(r.stdout)) || strings.Contains(r.stdout, nothing) {
			t.Errorf("%s: standard output is %s", command, r.stdout)
		}
		for _, text := range []string{"is not in MQ_TENANTS", nothing} {
			if !strings.Contains(r.stderr, `{"note":"tenant acmee `+text) {
				t.Errorf("%s --json does not note %q: %s", command, text, r.stderr)
			}
		}
		if r := f.run(append(args, "--tenant", "acme")...); strings.Contains(r.stderr, "nothing stored") {
			t.Errorf("%s: a tenant that is there is said not to be: %s", command, r.stderr)
		}
	}
	f.run("offsets", "--tenant", "acme", "--topic", "ordres").want(exitDone, "tenant acme has no topic ordres; it has orders, orders_dlq")
	f.run("lag", "--tenant", "acme", "--topic", orders, "--group", "biling").want(exitDone, "topic orders of tenant acme has no group biling; it has billing")
}

func TestDeadLettersOfATopicAreOnAnother(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	letters := []string{"deadletters", "--tenant", "acme", "--topic"}
	if r := f.run(append(letters, dead)...).want(exitDone, "nothing to list"); strings.Contains(r.stderr, "no topic") {
		t.Errorf("the topic has no dead letters, and is said not to be there: %s", r.stderr)
	}
	f.bury("a")
	f.run(append(letters, orders)...).want(exitDone, "are on topic orders_dlq", "\n  mqctl deadletters --tenant acme --topic orders_dlq\n")
}

// What acts on something finds it or says that it is not there.
func TestActingOnWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	f.bury("a")
	for want, command := range map[string]string{
		"tenant acmee has nothing stored":      "purge --tenant acmee --topic orders",
		"has no topic ordres; it has orders":   "purge --tenant acme --topic ordres",
		"has no group biling; it has billing":  "lease release --stale --tenant acme --topic orders --group biling",
		"has no topic ordres_dlq":              "deadletter redrive --tenant acme --topic ordres_dlq",
		"has no group biling on any topic":     "deadletter redrive --tenant acme --topic orders_dlq --group biling",
		"the group is not registered there":    "group drop --tenant acme --topic orders --group biling",
		"message \"b\" of tenant \"acme\", to": "message delete --tenant acme --topic orders --key k --id b",
	} {
		f.run(append(strings.Fields(command), "--yes")...).want(exitNotFound, want)
		f.run(strings.Fields(command)...).want(exitNotFound, want) // before anybody is asked
	}
	f.run("purge", "--yes", "--tenant", "acme", "--topic", orders).want(exitDone, "purged 0 messages")
	f.run("deadletter", "redrive", "--tenant", "acme", "--topic", dead, "--yes").want(exitDone, "redriven 1")
	f.run("deadletter", "redrive", "--tenant", "acme", "--topic", dead).want(exitDone, "redriven 0")
}

func TestPublishingToATopicWithoutGroupsIsNoted(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	const input = `{"id":"a","partition_key":"k","payload":"x"}`
	f.feed(input, "message", "publish", "--tenant", "acme", "--topic", "ordres").
		want(exitDone, "no group is registered for topic ordres of tenant acme", "topics of the tenant: orders", "published 1")
	if r := f.feed(input, publishArgs...).want(exitDone, "published 1"); r.stderr != "" {
		t.Errorf("there is a group, and a note: %s", r.stderr)
	}
}

// A dead letter goes to a group that nobody runs only if that is wanted.
func TestRedriveToAGroupThatIsGone(t *testing.T) {
	f := newFixture(t)
	f.bury("a", "b")
	f.run("group", "drop", "--yes", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone)
	many := []string{"deadletter", "redrive", "--yes", "--tenant", "acme", "--topic", dead}
	f.run(many...).want(exitNotFound, `"billing"`, "not registered", "--force")
	f.run("deadletter", "redrive", "--tenant", "acme", "--topic", dead).want(exitNotFound, "not registered") // before anybody is asked
	letter := decode[[]deadLetterRow](f.run("deadletters", "--tenant", "acme", "--json").want(exitDone))[0]
	one := []string{"message", "redrive", "--tenant", "acme", "--topic", dead, "--key", letter.PartitionKey, "--id", letter.ID}
	f.run(one...).want(exitNotFound, `"billing"`, "not registered", "--force")
	f.equal("dead letters", 2, f.stored(dead))
	f.run(append(one, "--force")...).want(exitDone, "redriven")
	f.run(append(many, "--force")...).want(exitDone, "redriven 1")
	f.equal("dead letters left", 0, f.stored(dead))
}
