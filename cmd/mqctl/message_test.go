package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
)

// hostile names would disturb a terminal, a shell or a table.
var hostile = []string{
	"two words", `"quoted"`, `it's 100% \n`, "🦊 狐 🏳️‍🌈", "line\nbreak\ttab", "\x1b[31mred\x1b]0;title\a", "csi \u009b31m", "\u202eevil", " leading", "-rf", "--yes",
}

// Names go from a listing back into flags, in the form in which they are shown,
// and reach the same message.
func TestHostileNamesGoThroughEverything(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	for _, name := range hostile {
		f.publish(acme, orders, name, name)
		f.check(f.next(sub).Reject(f.ctx, errors.New("refused: "+name)))
	}
	f.stop(sub)

	listed := f.run("deadletters", "--tenant", "acme").want(exitDone)
	ids := make(map[string]bool)
	for _, r := range decode[[]deadLetterRow](f.run("deadletters", "--tenant", "acme", "--json").want(exitDone)) {
		ids[r.ID] = true
	}
	for i, name := range hostile {
		shown := quote(name)
		if !strings.Contains(listed.stdout, shown) || strings.Count(listed.stdout, "\n") != len(hostile)+1 {
			t.Errorf("%s is not on a line of its own:\n%s", shown, listed.stdout)
		}
		id := decode[[]messageRow](f.run("message", "list", "--tenant", "acme", "--topic", dead, "--key="+shown, "--json").want(exitDone))[0].ID
		if !ids[id] {
			t.Fatalf("the listings name different messages: %q", id)
		}
		letter := []string{"--tenant", "acme", "--topic", dead, "--key=" + shown, "--id=" + quote(id)}
		f.run(append([]string{"message", "show"}, letter...)...).want(exitDone, "given up by", "payload: ")
		doc := decode[messageDoc](f.run(append([]string{"message", "show", "--json"}, letter...)...).want(exitDone))
		if doc.PartitionKey != name || doc.Failure == nil || doc.Failure.OriginalID != name {
			t.Errorf("%q is shown as %+v", name, doc)
		}
		if i%2 == 0 {
			f.run(append([]string{"message", "redrive"}, letter...)...).want(exitDone, "redriven", shown)
			original := []string{"message", "show", "--tenant", "acme", "--topic", orders, "--key", shown, "--id", shown}
			f.run(original...).want(exitDone, "only for group", billing)
		} else {
			f.run(append([]string{"message", "delete", "--yes"}, letter...)...).want(exitDone, "deleted", shown)
		}
		f.run(append([]string{"message", "show"}, letter...)...).want(exitNotFound, "not found")
	}
	f.equal("dead letters left", 0, f.stored(dead))
}

func TestMessageShow(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	long := strings.Repeat("ü", 200) // 400 bytes
	binary := []byte{0, 0x1b, '[', 'm', 0xff, '\r'}
	_, err := f.Publish(f.ctx,
		backend.Message{Tenant: acme, Topic: orders, PartitionKey: "k", ID: "text", Payload: []byte(long), Metadata: map[string]string{"color": "\x1b[31m\u202e"}},
		backend.Message{Tenant: acme, Topic: orders, PartitionKey: "k", ID: "binary", Payload: binary})
	f.check(err)
	f.check(f.next(sub).Nack(f.ctx, errors.New("card\x1b[31m declined")))

	show := func(id string, more ...string) []string {
		return append([]string{"message", "show", "--tenant", "acme", "--topic", orders, "--key", "k", "--id", id}, more...)
	}
	doc := decode[messageDoc](f.run(show("text", "--json")...).want(exitDone))
	f.equal("payload", payload{400, "text", strings.Repeat("ü", 128), true}, doc.Payload)
	if len(doc.Groups) != 1 || doc.Groups[0].Attempts != 1 || !strings.Contains(doc.Groups[0].LastError, "declined") || doc.Groups[0].VisibleInMS < 0 {
		t.Errorf("groups: %+v", doc.Groups)
	}
	f.equal("all of the payload", payload{400, "text", long, false}, decode[messageDoc](f.run(show("text", "--json", "--full")...).want(exitDone)).Payload)
	f.equal("binary", payload{6, "base64", base64.StdEncoding.EncodeToString(binary), false}, decode[messageDoc](f.run(show("binary", "--json")...).want(exitDone)).Payload)
	f.equal("hex", payload{6, "hex", hex.EncodeToString(binary), false}, decode[messageDoc](f.run(show("binary", "--json", "--hex")...).want(exitDone)).Payload)
	f.run(show("text")...).want(exitDone, "400 bytes, the beginning as text", `declined`, "STATE", "ago")
	if r := f.run(show("binary", "--raw")...); r.code != exitDone || r.stdout != string(binary) || r.stderr != "" {
		t.Errorf("raw: %q, %q", r.stdout, r.stderr)
	}
	f.run(show("nobody")...).want(exitNotFound, `"nobody"`)

	var metadata map[string]string
	f.check(json.Unmarshal(doc.Metadata, &metadata))
	f.equal("metadata", map[string]string{"color": "\x1b[31m\u202e"}, metadata)
}

// Where a group stands with a message: who has it, what it waits for, and for how
// long.
func TestMessageShowTellsWhatAGroupWaitsFor(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.publish(acme, orders, "k", "first", "second")
	f.next(sub) // in flight
	show := func(id string, texts ...string) result {
		return f.run("message", "show", "--tenant", "acme", "--topic", orders, "--key", "k", "--id", id).want(exitDone, texts...)
	}
	show("first", "its owner is at it", "this, waiting ")
	show("second", "first, waiting ", " +00:00, ")
	f.run("pause", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone)
	show("first", "paused; its owner is at it")
	f.exec("UPDATE queue_messages SET published_at = published_at - 110000 WHERE id = 'first'")
	show("second", "first, waiting 1 min 5")

	// An owner that vanished had both, and another has come to the partition.
	f.exec("UPDATE queue_partition_leases SET suspect_offset = claimed_offset + 1, leased_by = 'billing-2'")
	show("first", "an owner that vanished may have had it; billing-2 holds it now")
	f.exec("UPDATE queue_partition_leases SET lease_expires_at = 1")
	show("first", "an owner that vanished may have had it; nobody holds it now")
}

// A message that failed is found in the list of its partition, with why.
func TestMessageListTellsWhatFailed(t *testing.T) {
	f := newFixture(t)
	sub := f.subscribe()
	f.publish(acme, orders, "k", "a", "b")
	f.check(f.next(sub).Nack(f.ctx, errors.New("card declined\nat line 17")))
	// The wait is drawn from zero on; the one that is shown is not.
	f.exec("UPDATE queue_delivery_state SET visible_at = visible_at + 30000")
	list := []string{"message", "list", "--tenant", "acme", "--topic", orders, "--key", "k"}
	r := f.run(list...).want(exitDone, "STATE", "billing: again in ", " s, 1 attempt, card declined…")
	if strings.Contains(r.stdout, "line 17") || strings.Count(r.stdout, "billing") != 1 {
		t.Errorf("it lists\n%s", r.stdout)
	}
	rows := decode[[]messageRow](f.run(append(list, "--json")...).want(exitDone))
	if len(rows) != 2 || len(rows[0].States) != 1 {
		t.Fatalf("%+v", rows)
	}
	f.equal("states of b", []deliveryDoc{}, rows[1].States)
	got := rows[0].States[0]
	if got.VisibleInMS <= 0 || got.VisibleInMS > 60_000 {
		t.Errorf("visible in %d ms", got.VisibleInMS)
	}
	got.VisibleInMS = 0
	f.equal("states of a", deliveryDoc{Group: billing, Attempts: 1, LastError: "card declined\nat line 17"}, got)
}

func TestRedriveOfWhatIsNoDeadLetter(t *testing.T) {
	f := newFixture(t)
	f.publish(acme, orders, "k", "a")
	f.run("message", "redrive", "--tenant", "acme", "--topic", orders, "--key", "k", "--id", "a").want(exitNotFound, "no dead letter")
	f.equal("messages", 1, f.stored(orders))
}
