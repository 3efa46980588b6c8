package operator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend"
)

// litter fills a topic with rows of every kind: a deep partition, shallow ones,
// and some that have no message any more, of groups registered or not.
func litter(f *fixture, topic string) {
	f.Helper()
	f.register(topic, billing, audit)
	f.load(acme, topic, 1, 1_500)
	f.load(acme, topic, 300, 600)
	f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, acked) "+
		"SELECT tenant, 'billing', topic, partition_key, `offset`, 1 FROM queue_messages WHERE topic = ?", topic)
	f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, acked) "+
		"SELECT tenant, 'forgotten', topic, 'states', `offset`, 1 FROM queue_messages WHERE topic = ? LIMIT 700", topic)
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) "+
		"SELECT tenant, topic, partition_key, 'billing', MAX(`offset`), 0 FROM queue_messages WHERE topic = ? GROUP BY tenant, topic, partition_key", topic)
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'marks', 'dropped', 9, 0), (?, ?, '\x01', 'audit', 9, 0)",
		string(acme), topic, string(acme), topic)
	f.exec("INSERT INTO queue_partition_leases SELECT DISTINCT tenant, 'audit', topic, partition_key, 's', 1, 1, 1, "+nowMillis+" + 3600000, 0, 0 FROM queue_messages WHERE topic = ?", topic)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, 'gone', ?, 'leases', 's', 1, 1, 1, 1, 0, 0)", string(acme), topic)
}

func TestPurgeLeavesNoRow(t *testing.T) {
	f := newFixture(t)
	litter(f, orders)
	litter(f, dead)
	beside := f.rows(dead)
	var last Purged
	got := must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{Progress: func(p Purged) {
		step := p
		step.add(Purged{-last.Messages, -last.States, -last.Watermarks, -last.Leases})
		if n := step.Messages + step.States + step.Watermarks + step.Leases; n < 1 || n > 1_000 {
			t.Errorf("%d rows in a transaction: %+v", n, step)
		}
		last = p
	}}))
	f.want("purged", Purged{Messages: 2_100, States: 2_800, Watermarks: 302, Leases: 301}, got)
	f.want("told", got, last)
	f.want("rows left", map[string]int{}, f.rows(orders))
	f.want("rows of another topic", beside, f.rows(dead))
	f.want("registrations", 2, f.number("SELECT COUNT(*) FROM queue_offsets WHERE topic = ? AND partition_key = ''", orders))
	f.want("the second time", Purged{}, must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{})))
}

func TestPurgeOfOnePartition(t *testing.T) {
	f := newFixture(t)
	litter(f, orders)
	want := f.rows(orders)
	want["queue_messages"] -= 1_502
	want["queue_delivery_state"] -= 1_502
	want["queue_offsets"]--
	want["queue_partition_leases"]--
	got := must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{PartitionKey: "key-00000"}))
	f.want("purged", Purged{Messages: 1_502, States: 1_502, Watermarks: 1, Leases: 1}, got)
	f.want("rows left", want, f.rows(orders))
	if _, err := f.Purge(f.ctx, acme, orders, PurgeOptions{PartitionKey: "k "}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a bad key: %v", err)
	}
}

// A message that comes in while its partition is purged stays, and so does what
// says how far groups have come there.
func TestPurgeKeepsWhatComesInMeanwhile(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing)
	f.publish(orders, "a", ids(700)...)
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'a', ?, 5, 0)",
		string(acme), orders, billing)
	late := false
	got := must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{Progress: func(Purged) {
		if !late { // after the first of two transactions
			f.publish(orders, "a", "late")
			late = true
		}
	}}))
	f.want("purged", Purged{Messages: 700}, got)
	f.want("what is left", []string{"late"}, must[[]string](f)(read(f.ctx, f.tables[0], newQuery("SELECT id FROM queue_messages"), single[string])))
	f.want("watermarks", 1, f.rows(orders)["queue_offsets"])
}

func TestPurgeCanBeInterrupted(t *testing.T) {
	f := newFixture(t)
	litter(f, orders)
	ctx, cancel := context.WithCancelCause(f.ctx)
	got, err := f.Purge(ctx, acme, orders, PurgeOptions{Progress: func(Purged) { cancel(errors.New("enough")) }})
	if err == nil || got.Messages != purgeRows || !strings.Contains(err.Error(), "600 messages are removed") {
		t.Errorf("%+v, %v", got, err)
	}
	f.want("messages left", 2_100-purgeRows, f.rows(orders)["queue_messages"])
	must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{}))
	f.want("rows left", map[string]int{}, f.rows(orders))
}

// A purge beside publishers and a subscriber that is stuck on what is purged:
// what is published in other partitions, and in its own afterwards, is delivered,
// and in the end no row is left.
func TestPurgeBesidePublishersAndASubscriber(t *testing.T) {
	f := newFixture(t)
	f.register(orders, audit)
	sub := f.subscribe(orders, billing, func(c *backend.SubscriptionConfig) { c.LeaseDuration = 400 * time.Millisecond })
	other := f.subscribe(orders, audit, func(c *backend.SubscriptionConfig) { c.LeaseDuration = 400 * time.Millisecond })
	var mu sync.Mutex
	delivered := make(map[string]int)
	var consumers, publishers sync.WaitGroup
	for _, s := range []backend.Subscription{sub, other} {
		consumers.Go(func() {
			for d := range s.Deliveries() {
				m := d.Message()
				if strings.HasPrefix(m.ID, "bad") {
					continue // and never answer
				}
				if err := d.Ack(context.Background()); err == nil {
					mu.Lock()
					delivered[m.ID]++
					mu.Unlock()
				} else if !errors.Is(err, backend.ErrLeaseLost) {
					t.Errorf("ack %s: %v", m.ID, err)
				}
			}
		})
	}
	for i := range 30 {
		f.publish(orders, fmt.Sprintf("stuck-%02d", i), fmt.Sprintf("bad-%d", i), fmt.Sprintf("bad behind %d", i))
	}
	f.eventually("the subscribers are stuck", func() bool {
		return f.number("SELECT COUNT(*) FROM queue_partition_leases WHERE lease_expires_at > 0") >= 60
	})
	published := 3*40 + 30
	for i := range 3 {
		publishers.Go(func() {
			for n := range 40 {
				id := fmt.Sprintf("good-%d-%d", i, n)
				m := backend.Message{Tenant: acme, Topic: orders, PartitionKey: fmt.Sprintf("well-%d-%d", i, n%5), ID: id}
				if _, err := f.q.Publish(f.ctx, m); err != nil {
					t.Errorf("publish: %v", err)
				}
			}
		})
	}
	for i := range 30 {
		must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{PartitionKey: fmt.Sprintf("stuck-%02d", i)}))
	}
	publishers.Wait()
	for i := range 30 {
		f.publish(orders, fmt.Sprintf("stuck-%02d", i), fmt.Sprintf("after-%d", i))
	}
	f.eventually("everything is delivered to both", func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, times := range delivered {
			if times >= 2 {
				n++
			}
		}
		return n == published
	})
	f.eventually("no row is left", func() bool { return len(f.rows(orders)) == 0 })

	// The whole topic, with the subscribers at work on it.
	f.publish(orders, "stuck", "bad", "bad behind")
	f.publish(orders, "well", ids(200)...)
	must[Purged](f)(f.Purge(f.ctx, acme, orders, PurgeOptions{}))
	f.publish(orders, "stuck", "last")
	f.eventually("what came last is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return delivered["last"] == 2
	})
	f.eventually("no row is left", func() bool { return len(f.rows(orders)) == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = sub.Stop(ctx)
	_ = other.Stop(ctx)
	consumers.Wait()
}

// A purge waits for a settlement under way before it looks at anything: what that
// passes, of a message that has just come in and stays for another group, must not
// be forgotten.
func TestPurgeWaitsForSettlementsBeforeItLooks(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing, audit)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, "+nowMillis+" + 60000, 0, 0)", string(acme), billing, orders)
	f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'a', ?, 0, 0)",
		string(acme), orders, billing)
	settlement, err := f.tables[0].BeginTx(f.ctx, nil)
	f.check(err)
	defer settlement.Rollback()
	setMark := func(offset uint64) {
		t.Helper()
		_, err := settlement.ExecContext(f.ctx, "UPDATE queue_offsets SET offset_acked = ? WHERE tenant = ? AND topic = ? AND partition_key = 'a' AND consumer_group = ?",
			offset, string(acme), orders, billing)
		f.check(err)
	}
	_, err = settlement.ExecContext(f.ctx, "SELECT lease_epoch FROM queue_partition_leases WHERE tenant = ? AND consumer_group = ? AND topic = ? AND partition_key = 'a' FOR UPDATE",
		string(acme), billing, orders)
	f.check(err)
	setMark(1)
	purged := make(chan error, 1)
	go func() {
		_, err := f.Purge(f.ctx, acme, orders, PurgeOptions{PartitionKey: "a"})
		purged <- err
	}()
	f.eventuallyEvery(150*time.Millisecond, "the purge waits", func() bool {
		return f.number("SELECT COUNT(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id"+
			" WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()") == 1
	})
	setMark(f.publish(orders, "a", "a1")[0].Offset)
	f.check(settlement.Commit())
	f.check(<-purged)
	f.want("rows", map[string]int{"queue_messages": 1, "queue_offsets": 1, "queue_partition_leases": 2}, f.rows(orders))
}

// Until a purge has committed, nobody takes a lease of its partitions, whether or
// not there was one.
func TestPurgeKeepsOthersOutUntilItCommits(t *testing.T) {
	f := newFixture(t)
	f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 7, 1, 1000, 0, 0, 0)", string(acme), billing, orders)
	tx, err := f.db.BeginTx(f.ctx, nil)
	f.check(err)
	defer tx.Rollback()
	p := purging{Operator: f.Operator, tenant: acme, topic: orders, groups: []string{audit, billing}}
	f.check(p.take(f.ctx, tx, []string{"a"}))
	conn, err := f.tables[0].Conn(f.ctx)
	f.check(err)
	defer conn.Close()
	_, err = conn.ExecContext(f.ctx, "SET SESSION innodb_lock_wait_timeout = 1")
	f.check(err)
	for _, group := range []string{audit, billing} {
		_, err = conn.ExecContext(f.ctx, "INSERT INTO queue_partition_leases VALUES (?, ?, ?, 'a', 's', 9, 1, 1000, 1, 0, 0) "+
			"ON DUPLICATE KEY UPDATE lease_epoch = 9", string(acme), group, orders)
		if e, ok := errors.AsType[*driver.MySQLError](err); !ok || e.Number != errLockWaitTimeout {
			t.Errorf("group %s: %v", group, err)
		}
	}
}

// Publishers in other partitions of the topic do not hold a purge up, nor it them,
// however small the table is.
func TestPurgeWaitsForNoPublisher(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing)
	publisher, err := f.tables[0].BeginTx(f.ctx, nil)
	f.check(err)
	defer publisher.Rollback()
	ctx, cancel := context.WithTimeout(f.ctx, 4*time.Second) // less than any wait for a lock
	defer cancel()
	for _, n := range []int{1, 2, 12, 150, 700} {
		key := fmt.Sprintf("%04d", n)
		f.publish(orders, key, ids(n)...)
		for _, beside := range []string{key + "-", key + "+"} {
			_, err := publisher.ExecContext(f.ctx, "INSERT INTO queue_messages (tenant, topic, partition_key, id, payload, metadata, published_at, publish_id) VALUES "+
				"(?, ?, ?, '1', '', '{}', 1, 1)", string(acme), orders, beside)
			f.check(err)
		}
		got, err := f.Purge(ctx, acme, orders, PurgeOptions{PartitionKey: key})
		f.check(err)
		f.want("purged", Purged{Messages: n}, got)
	}
}

// Both forms of a list delete the rows named and no others.
func TestListsDeleteWhatTheyName(t *testing.T) {
	f := newFixture(t)
	for joined, db := range map[bool]*sql.DB{true: f.tables[0], false: f.db} { // vtgate does not take the join
		f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset) VALUES " +
			"('acme', 'g', 't', 'a', 1), ('acme', 'g', 't', 'a', 2), ('acme', 'g', 't', 'b', 1), ('acme', 'g', 't', 'b', 2), ('acme', 'h', 't', 'a', 1), ('x', 'g', 't', 'a', 1)")
		n := must[int](f)(stateList.remove(joined, []rowKey{{"a", 1}, {"b", 2}, {"c", 1}}, string(acme), "g", "t").exec(f.ctx, db))
		f.want("deleted", 2, n)
		f.want("left of those", 0, f.number("SELECT COUNT(*) FROM queue_delivery_state WHERE tenant = 'acme' AND consumer_group = 'g' AND (partition_key, message_offset) IN (('a', 1), ('b', 2))"))
		f.want("left", 4, f.number("SELECT COUNT(*) FROM queue_delivery_state"))
		f.exec("DELETE FROM queue_delivery_state")
	}
}
