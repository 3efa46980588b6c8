package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/tenants"
)

// crowd loads messages of several tenants, 20,000 of each: a topic of 10,000
// partitions, one of a few deep ones, and dead letters; with two groups, of which
// one has settled some ahead, leases of both, and subscribers.
func (f *fixture) crowd(n int) []tenants.ID {
	f.Helper()
	var list []tenants.ID
	for i := range n {
		tenant := tenants.ID(fmt.Sprintf("tenant-%02d", i))
		list = append(list, tenant)
		f.load(tenant, "wide", 10_000, 10_000)
		f.load(tenant, "deep", 3, 5_000)
		f.load(tenant, "dead", 1_000, 5_000)
	}
	f.exec("UPDATE queue_messages SET original_topic = 'wide', original_id = id, failed_group = 'billing', failed_at = published_at, failure_count = 3, " +
		"last_error = 'no' WHERE topic = 'dead'")
	for _, topic := range []string{"wide", "deep", "dead"} {
		for _, group := range []string{billing, audit} {
			for _, tenant := range list {
				f.exec("INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, '', ?, 0, "+nowMillis+")",
					string(tenant), topic, group)
				f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 's', 1, "+nowMillis+", "+nowMillis+" + 3600000)", string(tenant), group, topic)
			}
		}
	}
	f.exec("INSERT INTO queue_partition_leases (tenant, consumer_group, topic, partition_key, leased_by, lease_epoch, instance, leased_at, lease_expires_at) " +
		"SELECT DISTINCT tenant, 'billing', topic, partition_key, 's', 1, 1, 1, IF(partition_key LIKE '%7', 1, " + nowMillis + " + 3600000) FROM queue_messages")
	f.exec("INSERT INTO queue_delivery_state (tenant, consumer_group, topic, partition_key, message_offset, acked) " +
		"SELECT tenant, 'billing', topic, partition_key, `offset`, 1 FROM queue_messages WHERE topic = 'wide' AND partition_key LIKE '%0'")
	f.exec("ANALYZE TABLE queue_messages, queue_delivery_state, queue_offsets, queue_partition_leases")
	return list
}

// listing is a listing of one tenant, and how many rows the server may read for
// it.
type listing struct {
	name  string
	run   func(context.Context, *Operator, tenants.ID) error
	reads int
}

func of[T any](_ []T, err error) error { return err }

func listings() []listing {
	return []listing{
		{"topics", func(ctx context.Context, o *Operator, t tenants.ID) error { return of(o.Topics(ctx, t)) }, 20_000},
		{"groups", func(ctx context.Context, o *Operator, t tenants.ID) error { return of(o.Groups(ctx, t, "wide")) }, 85_000},
		{"offsets", func(ctx context.Context, o *Operator, t tenants.ID) error {
			return of(o.Offsets(ctx, t, Page{Topic: "wide"}))
		}, 3_000},
		{"offsets of deep partitions", func(ctx context.Context, o *Operator, t tenants.ID) error {
			return of(o.Offsets(ctx, t, Page{Topic: "deep", Group: audit}))
		}, 10_000},
		{"leases", func(ctx context.Context, o *Operator, t tenants.ID) error { return of(o.Leases(ctx, t, Page{})) }, 1_000},
		{"expired leases", func(ctx context.Context, o *Operator, t tenants.ID) error {
			return of(o.Leases(ctx, t, Page{Topic: "wide", StaleOnly: true}))
		}, 3_000},
		{"subscribers", func(ctx context.Context, o *Operator, t tenants.ID) error {
			return of(o.Subscribers(ctx, t, Page{}))
		}, 40_000},
		{"dead letters", func(ctx context.Context, o *Operator, t tenants.ID) error {
			return of(o.DeadLetters(ctx, t, Page{}))
		}, 1_500},
		{"message", func(ctx context.Context, o *Operator, t tenants.ID) error {
			_, err := o.Message(ctx, t, "wide", "key-00007", "10000-7")
			return err
		}, 50},
		{"estimate", func(ctx context.Context, o *Operator, t tenants.ID) error {
			_, err := o.Estimate(ctx, t, "wide", Scope{})
			return err
		}, 25_000},
		{"doctor", func(ctx context.Context, o *Operator, t tenants.ID) error {
			for _, finding := range o.Doctor(ctx, []tenants.ID{t}) {
				if finding.Severity > OK && strings.Contains(finding.Found, "could not be looked at") {
					return fmt.Errorf("%+v", finding)
				}
			}
			return nil
		}, 420_000},
	}
}

// BenchmarkListings takes a long time to load 1,000,000 messages of 50 tenants.
func BenchmarkListings(b *testing.B) {
	f := newFixture(b)
	f.ctx = b.Context()
	list := f.crowd(50)
	for _, l := range listings() {
		for _, tenants := range [][]tenants.ID{list[:1], list} {
			b.Run(fmt.Sprintf("%s of %d", l.name, len(tenants)), func(b *testing.B) {
				for b.Loop() {
					var slowest time.Duration
					for _, t := range tenants {
						begun := time.Now()
						if err := l.run(b.Context(), f.Operator, t); err != nil {
							b.Fatal(err)
						}
						slowest = max(slowest, time.Since(begun))
					}
					b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
				}
			})
		}
	}
}

// What the server reads for a listing is bounded by what it shows and counts,
// not by what is stored beside it.
func TestListingsReadWithinTheirBounds(t *testing.T) {
	f := newFixture(t)
	list := f.crowd(10)
	f.db.SetMaxOpenConns(1) // whose counters are read
	q, err := mysql.NewQueue(mysql.Params{DB: f.db})
	f.check(err)
	t.Cleanup(func() { f.check(q.Close(context.Background())) })
	o := New(f.db, q)
	f.check(q.Verify(f.ctx))
	for _, l := range listings() {
		t.Run(l.name, func(t *testing.T) {
			f.exec("FLUSH STATUS")
			if err := l.run(f.ctx, o, list[4]); err != nil {
				t.Fatal(err)
			}
			type counter struct {
				name string
				n    int
			}
			n := 0
			for _, c := range must[[]counter](f)(read(f.ctx, f.db, newQuery("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'"),
				func(c *counter) []any { return []any{&c.name, &c.n} })) {
				n += c.n
			}
			if n == 0 || n > l.reads {
				t.Errorf("read %d rows, want at most %d", n, l.reads)
			}
		})
	}
	for _, s := range samples(list[4], "wide", billing) {
		plan, err := explain(f.ctx, f.db, s.query)
		f.check(err)
		if problem := s.problem(plan); problem != "" || len(plan) == 0 {
			t.Errorf("%s: %s\n%s\n%+v", s.name, problem, strings.TrimSpace(s.text.String()), plan)
		}
	}
	rows := []rowKey{{"key-00001", 1}, {"key-00002", 2}, {"key-00003", 3}}
	id := string(list[4])
	for name, q := range map[string]*query{
		"end a lease":     newQuery(stmtEndLease+keepSuspects+endLeaseSet+ofLease+ifEpoch, id, billing, "wide", "key-00001", 1),
		"delete a state":  newQuery(stmtDropState, id, billing, "wide", "key-00001", 1),
		"delete messages": messageList.remove(true, rows, id, "wide"),
		"delete states":   stateList.remove(true, rows, id, billing, "wide"),
		"delete marks":    markList.remove(true, rows, id, "wide", billing),
		"delete leases":   leaseList.remove(true, rows, id, billing, "wide"),
	} {
		plan, err := explain(f.ctx, f.db, q)
		f.check(err)
		for _, p := range plan {
			one := p.access == "eq_ref" || p.access == "range" && len(plan) == 1 // a full key, of the list or by itself
			if strings.HasPrefix(p.table, "queue_") && (p.key != "PRIMARY" || !one) {
				t.Errorf("%s: %+v", name, plan)
			}
		}
	}
}
