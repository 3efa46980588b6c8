package operator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// stage has a group that works on one of two partitions, one that never started,
// and a dead letter.
func stage(f *fixture) (orderA1 backend.Receipt) {
	f.Helper()
	f.register(orders, audit)
	sub := f.subscribe(orders, billing)
	receipts := f.publish(orders, "a", "a1", "a2", "a3")
	f.check(f.next(sub).Ack(f.ctx))
	f.next(sub) // and keep it
	f.publish(orders, "b", "b1")
	f.check(f.next(sub).Reject(f.ctx, errors.New("no such customer")))
	return receipts[0]
}

func TestTopicsCountWhatIsStored(t *testing.T) {
	f := newFixture(t)
	stage(f)
	f.exec("INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES ('other', 'x', 'k', '1', '', '{}', 1, 1)")
	f.register("idle", billing)
	f.want("topics", []Topic{
		{Tenant: acme, Topic: "idle", Groups: 1},
		{Tenant: acme, Topic: orders, Messages: Count{N: 4}, Partitions: Count{N: 2}, Groups: 2},
		{Tenant: acme, Topic: dead, Messages: Count{N: 1}, Partitions: Count{N: 1}},
	}, must[[]Topic](f)(f.Topics(f.ctx, acme)))
}

// Counts are exact up to the bound, whatever the partitions' depths.
func TestCountsAreExactUpToTheirBound(t *testing.T) {
	f := newFixture(t)
	f.load(acme, "mixed", 1, 3_000)
	for i := range 300 {
		f.publish("mixed", fmt.Sprintf("z%03d", i), "m")
		if i%100 == 0 {
			f.publish("mixed", fmt.Sprintf("z%03d", i), ids(600)...)
		}
	}
	for _, c := range []struct {
		countTo              int
		messages, partitions Count
	}{
		{0, Count{1_000, true}, Count{N: 301}},
		{301, Count{301, true}, Count{N: 301}},
		{300, Count{300, true}, Count{300, true}},
		{1, Count{1, true}, Count{1, true}},
		{5_099, Count{5_099, true}, Count{N: 301}},
		{5_100, Count{N: 5_100}, Count{N: 301}},
	} {
		f.CountTo = c.countTo
		got := must[[]Topic](f)(f.Topics(f.ctx, acme))[0]
		f.want(fmt.Sprintf("messages up to %d", c.countTo), c.messages, got.Messages)
		f.want(fmt.Sprintf("partitions up to %d", c.countTo), c.partitions, got.Partitions)
	}
	for _, bad := range []int{-1, MaxCountTo + 1} {
		f.CountTo = bad
		if _, err := f.Topics(f.ctx, acme); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("CountTo %d: %v", bad, err)
		}
	}
}

func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("n%04d", i)
	}
	return list
}

func TestGroupsShowWhoIsBehind(t *testing.T) {
	f := newFixture(t)
	stage(f)
	f.check(f.q.Pause(f.ctx, acme, orders, audit))
	got := must[[]Group](f)(f.Groups(f.ctx, acme, ""))
	for i := range got {
		if age := time.Since(got[i].SeenAt).Abs(); age > time.Minute {
			t.Errorf("%s was seen %v ago", got[i].Group, age)
		}
		if got[i].Lag.Oldest < 0 || got[i].Lag.Oldest > time.Minute {
			t.Errorf("oldest of %s: %v", got[i].Group, got[i].Lag.Oldest)
		}
		got[i].SeenAt, got[i].Lag.Oldest = time.Time{}, 0
	}
	f.want("groups", []Group{
		{Tenant: acme, Topic: orders, Group: audit, Paused: true, Lag: backend.Lag{Messages: 4}},
		{Tenant: acme, Topic: orders, Group: billing, Subscribers: 1, Lag: backend.Lag{Messages: 2}},
	}, got)
}

// The lag read in one statement is that of the queue.
func TestLagIsThatOfTheQueue(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing, audit)
	f.publish(orders, "a", ids(30)...)
	f.publish(orders, "b", ids(3)...)
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) " +
		"SELECT tenant, topic, 'a', 'billing', MIN(`offset`) + 9, 0 FROM queue_messages WHERE partition_key = 'a' GROUP BY tenant, topic")
	f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, acked) " +
		"SELECT tenant, 'billing', topic, partition_key, `offset`, id LIKE '%7' FROM queue_messages WHERE id IN ('n0017', 'n0018')")
	f.exec("UPDATE queue_messages SET target_group = 'audit', published_at = published_at - 60000 WHERE id = 'n0002'")
	for _, g := range must[[]Group](f)(f.Groups(f.ctx, acme, orders)) {
		want := must[backend.Lag](f)(f.q.Lag(f.ctx, acme, orders, g.Group))
		if d := cmp.Diff(want, g.Lag, cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < 30*time.Second })); d != "" {
			t.Errorf("%s (-want +got):\n%s", g.Group, d)
		}
		if want.Messages == 0 || g.Group == billing && want.Messages != 30-10-1+3-1 {
			t.Errorf("%s: %+v proves nothing", g.Group, want)
		}
	}
}

func TestOffsetsShowWhatIsPendingAndWhoHasIt(t *testing.T) {
	f := newFixture(t)
	first := stage(f).Offset
	f.check(f.q.Pause(f.ctx, acme, orders, audit))
	got := must[[]Offset](f)(f.Offsets(f.ctx, acme, Page{}))
	for i := range got {
		if got[i].Oldest < 0 || got[i].Oldest > time.Minute {
			t.Errorf("oldest: %v", got[i].Oldest)
		}
		got[i].Oldest = 0
	}
	b := first + 3
	f.want("offsets", []Offset{
		{Tenant: acme, Topic: orders, PartitionKey: "a", Group: audit, Paused: true, Head: first, Tail: first + 2, Pending: Count{N: 3}},
		{Tenant: acme, Topic: orders, PartitionKey: "b", Group: audit, Paused: true, Head: b, Tail: b, Pending: Count{N: 1}},
		{
			Tenant: acme, Topic: orders, PartitionKey: "a", Group: billing, Watermark: first, Head: first, Tail: first + 2, Pending: Count{N: 2},
			Owner: "billing-1", State: Held,
		},
		{Tenant: acme, Topic: orders, PartitionKey: "b", Group: billing, Watermark: b, Head: b, Tail: b},
	}, got)
}

func TestLeasesShowTheirStates(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing)
	r := f.publish(orders, "held", "1")
	f.publish(orders, "gone", "1")
	for _, l := range []struct {
		key  string
		left string
	}{{"held", nowMillis + " + 60000"}, {"gone", nowMillis + " - 60000"}, {"back", "0"}} {
		f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, ?, 's', 7, 1, 1000, "+l.left+", 5, 3)", string(acme), billing, orders, l.key)
	}
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'held', ?, ?, 0)",
		string(acme), orders, billing, r[0].Offset)
	base := Lease{Tenant: acme, Topic: orders, Group: billing, Owner: "s", Epoch: 7, Since: time.Unix(1, 0).UTC(), Claimed: 5, Suspect: 3}
	back, gone, held := base, base, base
	back.PartitionKey, back.State = "back", Released
	gone.PartitionKey, gone.State, gone.ExpiresIn, gone.Pending = "gone", Expired, -time.Minute, true
	held.PartitionKey, held.State, held.ExpiresIn = "held", Held, time.Minute
	about := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < 30*time.Second })
	for _, c := range []struct {
		page Page
		want []Lease
	}{
		{Page{}, []Lease{back, gone, held}},
		{Page{StaleOnly: true}, []Lease{gone}},
		{Page{Topic: orders, Group: billing, Limit: 1}, []Lease{back}},
		{Page{Topic: "other"}, nil},
		{Page{Group: audit}, nil},
	} {
		if d := cmp.Diff(c.want, must[[]Lease](f)(f.Leases(f.ctx, acme, c.page)), about); d != "" {
			t.Errorf("%+v (-want +got):\n%s", c.page, d)
		}
	}
}

func TestSubscribersShowWhoIsAlive(t *testing.T) {
	f := newFixture(t)
	stage(f)
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 'dead', 1000, 1000, 2000)", string(acme), audit, orders)
	var got []Subscriber
	f.eventually("the heartbeat", func() bool {
		got = must[[]Subscriber](f)(f.Subscribers(f.ctx, acme, Page{}))
		return len(got) == 2
	})
	for i, s := range got {
		if s.Alive != (s.HeartbeatAge < time.Minute) {
			t.Errorf("%s: alive %v after %v", s.Name, s.Alive, s.HeartbeatAge)
		}
		got[i].HeartbeatAge, got[i].StartedAt = 0, time.Time{}
	}
	f.want("subscribers", []Subscriber{
		{Tenant: acme, Topic: orders, Group: audit, Name: "dead"},
		{Tenant: acme, Topic: orders, Group: billing, Name: "billing-1", Alive: true, Leases: Count{N: 1}},
	}, got)
}

func TestDeadLettersAreFoundByTheirRows(t *testing.T) {
	f := newFixture(t)
	stage(f)
	f.exec("UPDATE queue_messages SET topic = 'elsewhere' WHERE topic = ?", dead)
	got := must[[]DeadLetter](f)(f.DeadLetters(f.ctx, acme, Page{}))
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if time.Since(got[0].FailedAt).Abs() > time.Minute {
		t.Errorf("failed at %v", got[0].FailedAt)
	}
	want := DeadLetter{Tenant: acme, Topic: "elsewhere", PartitionKey: "b", ID: "b1", Offset: got[0].Offset, Failure: backend.Failure{
		OriginalTopic: orders, OriginalID: "b1", OriginalOffset: got[0].OriginalOffset, Group: billing, Attempts: 1, LastError: "no such customer",
		FailedAt: got[0].FailedAt,
	}}
	f.want("dead letter", want, got[0])
	f.want("of the topic", got, must[[]DeadLetter](f)(f.DeadLetters(f.ctx, acme, Page{Topic: "elsewhere"})))
	f.want("of another", []DeadLetter(nil), must[[]DeadLetter](f)(f.DeadLetters(f.ctx, acme, Page{Topic: orders})))
}

// Pages put together are the whole.
func TestPagesAreTheWholeListing(t *testing.T) {
	f := newFixture(t)
	for _, topic := range []string{"t", "t\x01", "u"} { // the second sorts before the first to the database
		f.register(topic, "g", "g\x01", "h")
		for _, key := range []string{"a", "a\x01", "b", "\x01"} {
			f.publish(topic, key, "1", "2")
		}
		for _, group := range []string{"g", "g\x01", "h"} {
			f.exec("INSERT INTO queue_partition_leases SELECT DISTINCT tenant, ?, topic, partition_key, 's', 1, 1, 1, 1, 0, 0 FROM queue_messages WHERE topic = ?", group, topic)
			f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 'a', 1, 1, 1), (?, ?, ?, 'a\x01', 1, 1, 1)",
				string(acme), group, topic, string(acme), group, topic)
		}
	}
	f.exec("UPDATE queue_messages SET original_topic = 'x'")
	paged(f, "offsets", 3*3*4, f.Offsets, Offset.Cursor)
	paged(f, "leases", 3*3*4, f.Leases, Lease.Cursor)
	paged(f, "subscribers", 3*3*3, f.Subscribers, Subscriber.Cursor)
	paged(f, "dead letters", 3*4*2, f.DeadLetters, DeadLetter.Cursor)
}

func paged[T any](f *fixture, what string, rows int, list func(ctx context.Context, tenant tenants.ID, p Page) ([]T, error), cursor func(T) Cursor) {
	f.Helper()
	ages := cmpopts.IgnoreTypes(time.Duration(0))
	whole := must[[]T](f)(list(f.ctx, acme, Page{}))
	if len(whole) != rows {
		f.Errorf("%s: %d rows, want %d", what, len(whole), rows)
	}
	for limit := 1; limit <= 5; limit++ {
		var all []T
		for p := (Page{Limit: limit}); len(all) <= rows; {
			page := must[[]T](f)(list(f.ctx, acme, p))
			all = append(all, page...)
			if len(page) < limit {
				break
			}
			p.After = cursor(page[limit-1])
		}
		if d := cmp.Diff(whole, all, ages); d != "" {
			f.Errorf("%s in pages of %d (-whole +pages):\n%s", what, limit, d)
		}
	}
	for _, limit := range []int{-1, MaxLimit + 1} {
		if _, err := list(f.ctx, acme, Page{Limit: limit}); !errors.Is(err, backend.ErrInvalid) {
			f.Errorf("%s of limit %d: %v", what, limit, err)
		}
	}
	if _, err := list(f.ctx, "", Page{}); !errors.Is(err, backend.ErrInvalid) {
		f.Errorf("%s of no tenant: %v", what, err)
	}
}

// An owner that has vanished is listed with what it still has.
func TestSubscribersShowTheLeasesOfOwnersWithoutAHeartbeat(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 'late', 1000, 1000, 2000), (?, ?, ?, 'z', 1000, 1000, 2000)",
		string(acme), billing, orders, string(acme), billing, orders)
	for key, of := range map[string]string{
		"a": "'late', 7, 1, 1, 1", "b": "'late', 7, 1, 1, 1", "c": "'gone', 7, 1, 1, 1", "d": "'gone', 7, 1, 1, " + nowMillis + " + 60000",
		"e": "'\x01', 7, 1, 1, 1", "f": "'back', 7, 1, 1, 0",
	} {
		f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, ?, "+of+", 0, 0)", string(acme), billing, orders, key)
	}
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 'alone', 7, 1, 1, 1, 0, 0)", string(acme), audit, orders)
	base := Subscriber{Tenant: acme, Topic: orders, Group: billing}
	alone := Subscriber{Tenant: acme, Topic: orders, Group: audit, Name: "alone", Gone: true, Expired: Count{N: 1}}
	odd, gone, late, z := base, base, base, base
	odd.Name, odd.Gone, odd.Expired = "\x01", true, Count{N: 1}
	gone.Name, gone.Gone, gone.Leases, gone.Expired = "gone", true, Count{N: 1}, Count{N: 1}
	late.Name, late.Expired = "late", Count{N: 2}
	z.Name = "z"
	want := []Subscriber{alone, odd, gone, late, z}
	for _, limit := range []int{1, 2, 3, 4, 5, 6} {
		var got []Subscriber
		for p := (Page{Limit: limit}); len(got) <= len(want); {
			page := must[[]Subscriber](f)(f.Subscribers(f.ctx, acme, p))
			for _, s := range page {
				s.StartedAt, s.HeartbeatAge = time.Time{}, 0
				got = append(got, s)
			}
			if len(page) < limit {
				break
			}
			p.After = page[limit-1].Cursor()
		}
		f.want(fmt.Sprintf("in pages of %d", limit), want, got)
	}
}
