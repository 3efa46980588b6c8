package operator

import (
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/tenants"
)

// about fails unless there is one finding of a check, of that severity, with
// these words in it or in its remedy.
func (f *fixture) about(findings []Finding, check string, severity Severity, words ...string) {
	f.Helper()
	found := by(findings, check)
	if len(found) != 1 || found[0].Severity != severity {
		f.Errorf("%s: %+v, want one that is %v", check, found, severity)
		return
	}
	for _, w := range words {
		if !strings.Contains(found[0].Found+"\n"+found[0].Remedy, w) {
			f.Errorf("%s: %+v does not say %s", check, found[0], w)
		}
	}
}

// alive gives a group a subscriber with a heartbeat.
func (f *fixture) alive(topic, group string) {
	f.Helper()
	f.register(topic, group)
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 's', 1, 1, "+nowMillis+" + 60000)", string(acme), group, topic)
}

// fails has the message with an id of all partitions of a topic failed so often.
func (f *fixture) fails(group, topic, id string, attempts int) {
	f.Helper()
	f.exec("INSERT INTO queue_delivery_state SELECT tenant, ?, topic, partition_key, `offset`, 0, 0, ?, ?, "+nowMillis+" + 90000, 'no route\nto host' "+
		"FROM queue_messages WHERE topic = ? AND id = ?", group, attempts, attempts, topic, id)
}

func TestDoctorFindsPartitionsThatFail(t *testing.T) {
	f := newFixture(t)
	f.alive(orders, billing)
	for _, key := range []string{"a", "b", "it's"} {
		f.publish(orders, key, "1-"+key, "2-"+key)
	}
	f.fails(billing, orders, "2-b", 9) // not the first
	doctor := func() []Finding { return f.Doctor(f.ctx, []tenants.ID{"nobody", acme}) }
	f.about(doctor(), "failures", OK, "no partition")
	f.fails(billing, orders, "1-a", 1)
	f.about(doctor(), "failures", OK, "1 of 3 partitions", "attempts 1")
	f.fails(billing, orders, "1-it's", manyFailures)
	f.about(doctor(), "failures", Warn, `2 of 3 partitions with work of tenant "acme", topic "orders", group "billing"`, `"1-it's" of partition "it's"`,
		"attempts 3, the next in 1m", `last error "no route"`,
		`mqctl message show --tenant acme --topic orders --key 'it'\''s' --id '1-it'\''s'`)
	f.fails(billing, orders, "1-b", manyFailures)
	f.exec("UPDATE queue_delivery_state SET attempts = 4")
	f.about(doctor(), "failures", Bad, "3 of 3 partitions")
	f.exec("UPDATE queue_delivery_state SET acked = 1")
	f.about(doctor(), "failures", OK, "no partition")
}

// A handler that hangs leaves no trace but a partition that is held, has work,
// and does not move.
func TestDoctorFindsHandlersThatHang(t *testing.T) {
	f := newFixture(t)
	f.alive(orders, billing)
	sub := f.subscribe(orders, billing)
	r := f.publish(orders, "a", "a1", "a2")
	f.check(f.next(sub).Ack(f.ctx))
	f.next(sub) // and hang
	f.eventually("the watermark", func() bool {
		return f.number("SELECT COUNT(*) FROM queue_offsets WHERE offset_acked = ?", r[0].Offset) == 1
	})
	// Another group has lost the partition, which is for the check of the leases.
	f.alive(orders, audit)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 1, ?, 0)", string(acme), audit, orders, r[1].Offset)
	doctor := func() []Finding { return f.Doctor(f.ctx, []tenants.ID{acme}) }
	const past = nowMillis + " - 600000"
	times := []string{"queue_messages SET published_at", "queue_partition_leases SET leased_at", "queue_offsets SET updated_at"}
	for _, column := range times {
		f.exec("UPDATE " + column + " = " + past)
	}
	for _, column := range times {
		f.exec("UPDATE " + column + " = " + nowMillis)
		f.about(doctor(), "handlers", OK, "no message")
		f.exec("UPDATE " + column + " = " + past)
	}
	f.about(doctor(), "handlers", Warn, `no move for 5m0s or longer in 1 of 1 partition with work of tenant "acme", topic "orders", group "billing"`, `"a2"`, `"billing-1"`, "for up to 10m",
		"mqctl lease release --tenant acme --topic orders --group billing --key a`")
	f.exec("UPDATE queue_partition_leases SET claimed_offset = 0 WHERE consumer_group = ?", billing)
	f.about(doctor(), "handlers", OK) // not handed over
	f.exec("UPDATE queue_partition_leases SET claimed_offset = ? WHERE consumer_group = ?", r[1].Offset, billing)
	f.exec("INSERT INTO queue_delivery_state VALUES (?, ?, ?, 'a', ?, 0, 0, 1, 2, "+past+", 'no')", string(acme), billing, orders, r[1].Offset)
	f.about(doctor(), "handlers", Warn) // in its second attempt
	f.exec("UPDATE queue_delivery_state SET visible_at = " + nowMillis + " + 60000")
	f.about(doctor(), "handlers", OK) // which is not due
	f.exec("DELETE FROM queue_delivery_state")
	f.check(f.q.Pause(f.ctx, acme, orders, billing))
	f.about(doctor(), "handlers", OK)
}

func TestDoctorBoundsThePartitionsItLooksAt(t *testing.T) {
	f := newFixture(t)
	f.load(acme, orders, 2_500, 2_500)
	f.alive(orders, billing)
	f.alive(orders, audit)
	f.fails(billing, orders, "2500-2400", 5)
	f.fails(audit, orders, "2500-0", 5)
	for _, c := range []struct {
		bound int
		want  []string
	}{
		{2_400, []string{"1 of 2400 partitions", "1 group left out, after 2400 partitions"}},
		{5_000, []string{"1 of 2500 partitions", "1 of 2500 partitions"}},
		{4_000, []string{"1 of 2500 partitions"}},
	} {
		e := &examination{Operator: f.Operator, lagAge: maxLagAge, handlerPatience: handlerPatience, maxHeads: c.bound}
		if !e.survey(f.ctx, []tenants.ID{acme}) {
			t.Fatal(e.findings)
		}
		e.heads(f.ctx)
		found := by(e.findings, "failures")
		if len(found) != len(c.want) {
			t.Fatalf("%d: %+v", c.bound, found)
		}
		for i, w := range c.want {
			if !strings.HasPrefix(found[i].Found, w) {
				t.Errorf("%d: %+v, want %s", c.bound, found[i], w)
			}
		}
	}
}

func TestDoctorFindsWhatWaitsInVain(t *testing.T) {
	f := newFixture(t)
	f.alive(orders, billing)
	f.publish(orders, "a", "a1", "a2")
	f.publish("odrers", "a", "a1")
	bury := func(topic string) {
		f.exec("UPDATE queue_messages SET original_topic = ?, original_id = id, failed_group = ?, failed_at = published_at, failure_count = 7, last_error = 'no\nroute' "+
			"WHERE topic = ?", orders, billing, topic)
	}
	f.publish(dead, "k", "d1", "d2")
	bury(dead)
	f.exec("UPDATE queue_messages SET target_group = 'gone' WHERE topic = ? AND id = 'a2'", orders)
	doctor := func() []Finding { return f.Doctor(f.ctx, []tenants.ID{acme}) }
	findings := doctor()
	f.about(findings, "topics", Warn, `topic "odrers" of tenant "acme"`, "`mqctl purge --tenant acme --topic odrers`")
	f.about(findings, "redriven", Warn, `1 message of tenant "acme", topic "orders" for group "gone" alone`, `"a2"`,
		"`mqctl message delete --tenant acme --topic orders --key a --id a2`")
	f.about(findings, "dead letters", Warn, `topic "orders_dlq" of tenant "acme" holds 2 dead letters, such as "d1" of partition "k"`, "7 attempts", `"no"`,
		"`mqctl deadletters --tenant acme --topic orders_dlq`")
	f.about(findings, "lag", OK)
	f.exec("UPDATE queue_messages SET published_at = " + nowMillis + " - 700000")
	f.about(doctor(), "lag", Warn, `group "billing" of tenant "acme", topic "orders" has 1 message pending`, "mqctl offsets --tenant acme --topic orders --group billing")
	f.check(f.q.Pause(f.ctx, acme, orders, billing))
	f.about(doctor(), "lag", OK)
	f.register(orders, "gone")
	f.register("odrers", billing)
	findings = doctor()
	f.about(findings, "topics", OK)
	f.about(findings, "redriven", OK)
}
