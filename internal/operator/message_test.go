package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

func TestMessageShowsWhereEveryGroupStands(t *testing.T) {
	f := newFixture(t)
	f.register(orders, audit, "slow")
	r := f.publish(orders, "a", "a0", "a1")[1]
	f.exec("UPDATE queue_messages SET metadata = '{\"k\":\"v\"}' WHERE id = 'a1'")
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'a', ?, ?, 0)",
		string(acme), orders, audit, r.Offset)
	f.exec("INSERT INTO queue_delivery_state VALUES (?, 'slow', ?, 'a', ?, 0, 1, 2, 3, "+nowMillis+" + 60000, 'busy')", string(acme), orders, r.Offset)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, 'slow', ?, 'a', 's', 7, 1, 1000, 1, 0, ?)", string(acme), orders, r.Offset)

	d := must[MessageDetail](f)(f.Message(f.ctx, acme, orders, "a", "a1"))
	if left := d.Groups[1].VisibleIn; left < 30*time.Second || left > time.Minute {
		t.Errorf("visible in %v", left)
	}
	if time.Since(d.PublishedAt).Abs() > time.Minute || d.PublishID == 0 {
		t.Errorf("published at %v by %d", d.PublishedAt, d.PublishID)
	}
	d.Groups[1].VisibleIn, d.PublishedAt, d.PublishID = 0, time.Time{}, 0
	f.want("message", MessageDetail{
		Tenant: acme, Topic: orders, PartitionKey: "a", ID: "a1", Offset: r.Offset, Payload: []byte("payload of a1"), Metadata: `{"k":"v"}`,
		Groups: []MessageState{
			{Group: audit, Settled: true},
			{
				Group: "slow", Stored: true, Postponed: true, Attempts: 2, Deliveries: 3, LastError: "busy", Suspect: true,
				Owner: "s", Lease: Expired,
			},
		},
	}, d)
	f.exec("UPDATE queue_messages SET target_group = 'slow', original_id = 'was' WHERE id = 'a0'")
	d = must[MessageDetail](f)(f.Message(f.ctx, acme, orders, "a", "a0"))
	if d.TargetGroup != "slow" || d.OriginalID != "was" || d.Failure != nil || d.Groups[1].Settled {
		t.Errorf("redriven: %+v", d)
	}
	if _, err := f.Message(f.ctx, acme, orders, "a", "a9"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := f.Message(f.ctx, acme, orders, "a", ""); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
}

// A suspect that its new owner may be at is told from one that nobody is.
func TestMessageShowsWhoMayBeAtIt(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing)
	r := f.publish(orders, "a", "a1")[0].Offset
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 0, 0, 0)", string(acme), billing, orders)
	const held, expired = nowMillis + " + 60000", "1"
	for _, c := range []struct {
		expires          string
		claimed, suspect uint64
		want             MessageState
	}{
		{held, 0, 0, MessageState{Lease: Held}},
		{held, r, 0, MessageState{Lease: Held, InHand: true}},
		{held, r, r, MessageState{Lease: Held, InHand: true, Suspect: true}},
		{held, r - 1, r, MessageState{Lease: Held, Suspect: true}},
		{expired, r, r, MessageState{Lease: Expired, Suspect: true}},
		{expired, r, 0, MessageState{Lease: Expired, Suspect: true}}, // as whoever takes it next will find it
	} {
		f.exec("UPDATE queue_partition_leases SET lease_expires_at = "+c.expires+", claimed_offset = ?, suspect_offset = ?", c.claimed, c.suspect)
		c.want.Group, c.want.Owner = billing, "s"
		f.want(fmt.Sprintf("claimed %d, suspect %d, of %d", c.claimed, c.suspect, r), []MessageState{c.want},
			must[MessageDetail](f)(f.Message(f.ctx, acme, orders, "a", "a1")).Groups)
	}
	f.check(f.q.Pause(f.ctx, acme, orders, billing))
	f.want("paused", true, must[MessageDetail](f)(f.Message(f.ctx, acme, orders, "a", "a1")).Groups[0].Paused)
	f.want("lease of a paused group", true, must[[]Lease](f)(f.Leases(f.ctx, acme, Page{}))[0].Paused)
}

func TestDeleteMessageLeavesNothingOfIt(t *testing.T) {
	f := newFixture(t)
	f.register(orders, audit)
	r := f.publish(orders, "a", "a1", "a2")
	for _, group := range []string{billing, audit} { // one of them not registered
		for _, m := range r {
			f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, attempts) VALUES (?, ?, ?, 'a', ?, 1)",
				string(acme), group, orders, m.Offset)
		}
	}
	f.check(f.DeleteMessage(f.ctx, acme, orders, "a", "a1"))
	f.want("rows", map[string]int{"queue_messages": 1, "queue_delivery_state": 2}, f.rows(orders))
	f.want("the other one's", 2, f.number("SELECT COUNT(*) FROM queue_delivery_state WHERE message_offset = ?", r[1].Offset))
	if err := f.DeleteMessage(f.ctx, acme, orders, "a", "a1"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("the second time: %v", err)
	}
	if err := f.DeleteMessage(f.ctx, acme, orders, "", "a1"); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// A message that fails again and again, and so holds up its partition, is gone
// when it is deleted, though its owner has it in memory: it is not delivered for
// good, nor dead-lettered, and what was behind it is, without an attempt charged.
func TestDeletedMessageIsSettledUnderALease(t *testing.T) {
	for name, deleteIn := range map[string]bool{"while it is handled": true, "while it waits for its next attempt": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			sub := f.subscribe(orders, billing, func(c *backend.SubscriptionConfig) {
				c.LeaseDuration, c.Retry.MaxAttempts = 300*time.Millisecond, 1000
			})
			f.publish(orders, "a", "poison", "good")
			d := f.next(sub)
			if !deleteIn {
				f.check(d.Nack(f.ctx, errors.New("no")))
			}
			f.check(f.DeleteMessage(f.ctx, acme, orders, "a", "poison"))
			if deleteIn {
				if err := d.Nack(f.ctx, errors.New("no")); !errors.Is(err, backend.ErrLeaseLost) {
					t.Errorf("the owner's Nack: %v", err)
				}
			}
			for d = f.next(sub); d.Message().ID == "poison"; d = f.next(sub) { // from memory
				if err := d.Nack(f.ctx, errors.New("no")); !errors.Is(err, backend.ErrLeaseLost) {
					t.Errorf("the owner's Nack: %v", err)
				}
			}
			f.want("attempt", 1, d.Attempt())
			f.check(d.Ack(f.ctx))
			f.eventually("no row is left", func() bool { return len(f.rows(orders)) == 0 })
			f.want("dead letters", map[string]int{}, f.rows(dead))
		})
	}
}
