package operator

import (
	"fmt"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// hostile are identifiers that SQL, patterns, terminals or comparisons might take
// for something else. Those of ASCII alone do for every identifier.
var (
	hostileASCII = []string{
		"a b", "'", `"`, "`", `\`, `a\'b`, "%", "_", "a%", "a_", "--", "; DROP TABLE queue_messages; --", "/*", "\n", "a\nb", "\t", "\x1b[31mred", "\x01", "a\x01", "a", "A", " a", "\x7f",
	}
	hostile = append([]string{"é", "e\u0301", "👩‍🚀", "日本", "\u202eabc", "\u00a0", "ß", "ss"}, hostileASCII...)
)

func TestHostileIdentifiersAreTakenExactly(t *testing.T) {
	tenant := tenants.ID(`o'neil\"%_;` + "\n👩"[:1])
	f := newFixture(t, tenant)
	topic, group := `t'\%_"`+"\n`;", `g'\%_"`+"\x1b[0m"
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, '', ?, 0, 1)", string(tenant), topic, group)
	var msgs []backend.Message
	for _, h := range hostile { // each as a key and as an id
		msgs = append(msgs,
			backend.Message{Tenant: tenant, Topic: topic, PartitionKey: h, ID: "m", Payload: []byte(h)},
			backend.Message{Tenant: tenant, Topic: topic, PartitionKey: "k", ID: h, Payload: []byte(h)})
		f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, ?, ?, 7, 1, 1000, 1, 5, 3)", string(tenant), group, topic, h, `s'\%`)
	}
	must[[]backend.Receipt](f)(f.q.Publish(f.ctx, msgs...))
	for _, h := range hostileASCII { // each as a topic, group and name
		f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, '', ?, 0, 1)", string(tenant), h, h)
		f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, ?, 1, 1, 1)", string(tenant), h, h, h)
	}

	topics := make(map[string]bool)
	for _, l := range must[[]Topic](f)(f.Topics(f.ctx, tenant)) {
		topics[l.Topic] = l.Tenant == tenant && l.Groups == 1
	}
	groups, names := make(map[string]bool), make(map[string]bool)
	for _, g := range must[[]Group](f)(f.Groups(f.ctx, tenant, "")) {
		groups[g.Group] = g.Topic == g.Group
	}
	for _, s := range must[[]Subscriber](f)(f.Subscribers(f.ctx, tenant, Page{})) {
		names[s.Name] = s.Topic == s.Name && s.Group == s.Name
	}
	for _, h := range hostileASCII {
		if !topics[h] || !groups[h] || !names[h] {
			t.Errorf("%q: as topic %v, group %v, name %v", h, topics[h], groups[h], names[h])
		}
	}
	keys, leased := make(map[string]bool), make(map[string]bool)
	for _, o := range must[[]Offset](f)(f.Offsets(f.ctx, tenant, Page{Topic: topic, Group: group})) {
		keys[o.PartitionKey] = o.Pending.N >= 1 && o.State == map[bool]LeaseState{true: NoLease, false: Expired}[o.PartitionKey == "k"]
	}
	for _, l := range must[[]Lease](f)(f.Leases(f.ctx, tenant, Page{StaleOnly: true})) {
		leased[l.PartitionKey] = l.Owner == `s'\%` && l.Pending
	}
	for _, h := range hostile {
		if !keys[h] || !leased[h] {
			t.Errorf("%q: listed %v, with a lease %v", h, keys[h], leased[h])
		}
	}
	f.exec("UPDATE queue_messages SET original_topic = topic, original_id = id")
	letters := make(map[string]bool)
	for _, d := range must[[]DeadLetter](f)(f.DeadLetters(f.ctx, tenant, Page{})) {
		letters[d.PartitionKey+"/"+d.ID] = d.OriginalTopic == topic && d.OriginalID == d.ID
	}
	f.want("dead letters", len(msgs), len(letters))

	left := len(msgs)
	gone := func(what string, removed int) {
		t.Helper()
		left -= removed
		f.want(what, left, f.number("SELECT COUNT(*) FROM queue_messages"))
	}
	for _, m := range msgs {
		d := must[MessageDetail](f)(f.Message(f.ctx, tenant, topic, m.PartitionKey, m.ID))
		f.want(fmt.Sprintf("message %q of %q", m.ID, m.PartitionKey), string(m.Payload), string(d.Payload))
		if !letters[m.PartitionKey+"/"+m.ID] {
			t.Errorf("dead letter %q of %q is not listed", m.ID, m.PartitionKey)
		}
		if m.PartitionKey == "k" {
			f.check(f.DeleteMessage(f.ctx, tenant, topic, "k", m.ID))
			gone(fmt.Sprintf("messages without %q", m.ID), 1)
		}
	}
	for i, h := range hostile {
		if l := must[Lease](f)(f.ReleaseLease(f.ctx, tenant, topic, group, h)); l.PartitionKey != h {
			t.Errorf("released %q for %q", l.PartitionKey, h)
		}
		f.want(fmt.Sprintf("leases with that of %q", h), i+1, f.number("SELECT COUNT(*) FROM queue_partition_leases WHERE lease_expires_at = 0 AND lease_epoch > 7"))
		if i == len(hostile)/2 {
			break
		}
	}
	f.want("the rest of the leases", len(hostile)-len(hostile)/2-1, must[int](f)(f.ReleaseStale(f.ctx, tenant, topic, group)))
	for i, h := range hostile {
		if i == len(hostile)/2 {
			break
		}
		p := must[Purged](f)(f.Purge(f.ctx, tenant, topic, PurgeOptions{PartitionKey: h}))
		f.want(fmt.Sprintf("purged of %q", h), Purged{Messages: 1, Leases: 1}, p)
		gone(fmt.Sprintf("messages without partition %q", h), 1)
	}
	p := must[Purged](f)(f.Purge(f.ctx, tenant, topic, PurgeOptions{}))
	gone("messages after all", p.Messages)
	f.want("what is left", 0, left+f.number("SELECT COUNT(*) FROM queue_partition_leases"))
}
