package mysql

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// hostileKeys differ from each other in Go and must in the database, and some
// sort there otherwise: a key compares as if padded with spaces, so "\x01" is
// below "" and "a\x1f" below "a".
func hostileKeys() []string {
	return []string{
		"\x01", "\x01\x01", "a", "a\x1f", "a\x01", "a!", "A", "é", "e\u0301", "E\u0301", "ß", "ss", "💥", "💥💥", "\U0010FFFF",
		" leading", "it's", `"quoted"`, `back\slash`, `\`, `\'`, "'; DROP TABLE queue_messages; --", "%", "_", "?", "`", "\n\r\t", "\u200b", "/*",
		strings.Repeat("💥", backend.MaxIdentLength), strings.Repeat("x", backend.MaxIdentLength),
	}
}

func (f *fixture) discover(s *store, list []tenants.ID, after string, limit int) []engine.Stored {
	f.Helper()
	found, err := s.Discover(f.Context(), list, after, limit)
	if err != nil {
		f.Fatal(err)
	}
	return found
}

func TestDiscoverShowsHeadAndTailOfEveryPartition(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	want := make(map[engine.Stored]bool)
	list := []tenants.ID{tenantA, "it's", `back\slash`, "A", "a", "\x01", "nothing here"}
	for _, tenant := range list[:6] {
		for _, key := range []string{"k", "it's"} {
			r := mustPublish(t, f.q, message(tenant, topicA, key, 1), message(tenant, topicA, key, 2), message(tenant, topicA, key, 3))
			want[engine.Stored{Tenant: tenant, Key: key, Head: r[0].Offset, Tail: r[2].Offset}] = true
			mustPublish(t, f.q, message(tenant, topicA+"2", key, 1), message(tenant, "order", key, 1))
		}
	}
	mustPublish(t, f.q, message("stranger", topicA, "k", 1))
	got := make(map[engine.Stored]bool)
	for _, p := range f.discover(s, list, "", 1000) {
		got[p] = true
	}
	f.want("partitions", want, got)
	f.want("a page", 5, len(f.discover(s, list, "", 5)))
	f.want("nobody's", 0, len(f.discover(s, nil, "", 5)))
}

func TestDiscoverPagesMissNoKey(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	keys := hostileKeys()
	for _, key := range keys {
		f.publish(key, 2)
	}
	for _, size := range []int{1, 2, 7, 1000} {
		var got []string
		after := ""
		for {
			page := f.discover(s, []tenants.ID{tenantA}, after, size)
			for _, p := range page {
				got = append(got, p.Key)
			}
			if len(page) < size {
				break
			}
			after = page[len(page)-1].Key
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(keys))
		f.want(fmt.Sprintf("keys in pages of %d", size), want, got)
	}
}

func TestDiscoverManyTenants(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	list := make([]tenants.ID, 2*listTenants+10)
	for i := range list {
		list[i] = tenants.ID(fmt.Sprintf("tenant-%04d", i))
	}
	for _, i := range []int{0, listTenants - 1, listTenants, len(list) - 1} {
		mustPublish(t, f.q, message(list[i], topicA, "k", 1))
	}
	var got []tenants.ID
	for _, p := range f.discover(s, list, "", 100) {
		got = append(got, p.Tenant)
	}
	f.want("tenants", []tenants.ID{list[0], list[listTenants-1], list[listTenants], list[len(list)-1]}, got)
	f.want("a page", 3, len(f.discover(s, list, "", 3)))
	if _, err := s.Control(t.Context(), list); err != nil {
		t.Error(err)
	}
	if err := s.Purge(t.Context(), list); err != nil {
		t.Error(err)
	}
}

// The cost of a look follows the partitions, not the messages in them.
func TestDiscoverReadsThreeKeysAPartition(t *testing.T) {
	f := newFixture(t)
	s := f.store(groupA, "one")
	const partitions, deep = 40, 300
	for i, key := range partitionKeys(partitions) {
		n := 1
		if i%2 == 0 {
			n = deep
		}
		f.publish(key, n)
		mustPublish(t, f.q, message(tenantA, "another", key, i), message("zzz", topicA, key, i))
	}
	for name, c := range map[string]struct {
		list  []tenants.ID
		after string
		want  int
	}{
		"one tenant":      {[]tenants.ID{tenantA}, "", partitions},
		"a later page":    {[]tenants.ID{tenantA}, partitionKeys(partitions)[9], partitions - 10},
		"several":         {[]tenants.ID{tenantA, "nobody", "zzz"}, "", 2 * partitions},
		"without a thing": {[]tenants.ID{"nobody"}, "", 0},
	} {
		reads := rowsRead(t, f, func(db querier) int {
			n := 0
			var p engine.Stored
			if err := s.discover(c.list, c.after, 1000).each(t.Context(), db, []any{&p.Tenant, &p.Key, &p.Head, &p.Tail}, func() { n++ }); err != nil {
				t.Fatal(err)
			}
			f.want("partitions, "+name, c.want, n)
			return n
		})
		if most := 3*c.want + 3*len(c.list); reads > most {
			t.Errorf("%s: %d key reads for %d partitions", name, reads, c.want)
		}
	}
}

// rowsRead counts what the server reads from its indexes meanwhile.
func rowsRead(t testing.TB, f *fixture, fn func(querier) int) int {
	t.Helper()
	conn, err := f.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := sessionReads(t, conn)
	fn(conn)
	return sessionReads(t, conn) - before
}

// sessionReads counts what the server has read from its indexes in a session.
func sessionReads(t testing.TB, session querier) (n int) {
	t.Helper()
	rows, err := session.QueryContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name IN"+
		" ('Handler_read_first', 'Handler_read_key', 'Handler_read_last', 'Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd')")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var v int
		if err := rows.Scan(&name, &v); err != nil {
			t.Fatal(err)
		}
		n += v
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Every method tells hostile identifiers apart, also within one batch.
func TestHostileIdentifiers(t *testing.T) {
	for name, vitess := range map[string]bool{"joined": false, "listed, as for Vitess": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			hostileIdentifiers(t, f, vitess)
		})
	}
	t.Run("on a pool with another collation", func(t *testing.T) {
		hostileIdentifiers(t, newFixtureWith(t, "utf8mb4_general_ci"), false)
	})
}

func hostileIdentifiers(t *testing.T, f *fixture, vitess bool) {
	const tenant, group, name = tenants.ID("it's \\ \"a\" tenant"), `gr'ou\p "`, `na'm\e "`
	const topic = "to'p\\ic \" `"
	keys := hostileKeys()
	s := f.unregistered(topic, group, name)
	other := f.unregistered(topic, group, name+"2")
	ctx := t.Context()
	list := []tenants.ID{tenant}
	if err := s.Register(ctx, list); err != nil {
		t.Fatal(err)
	}
	const each = 5
	run := make(map[string][]uint64)
	for _, key := range keys {
		for n := range each {
			m := message(tenant, topic, key, n)
			m.ID = key
			if n > 0 {
				m.ID = fmt.Sprintf("%.200s%d", key, n)
			}
			run[key] = append(run[key], mustPublish(t, f.q, m)[0].Offset)
		}
	}
	f.q.vitess.Store(vitess)

	var candidates []engine.Candidate
	for _, key := range keys {
		candidates = append(candidates, engine.Candidate{Key: key, Claim: run[key][0]})
	}
	grants := func(s *store) map[string]engine.Grant {
		t.Helper()
		a, err := s.Acquire(ctx, tenant, candidates)
		if err != nil {
			t.Fatal(err)
		}
		m := make(map[string]engine.Grant)
		for _, g := range a.Grants {
			m[g.Key] = g
		}
		f.want("grants", len(keys), len(m))
		return m
	}
	held := grants(s)

	// Each partition gets a claim of its own.
	var claims []engine.Claim
	var leases []engine.Lease
	for i, key := range keys {
		claims = append(claims, engine.Claim{Lease: held[key].Lease, Offset: run[key][0] + uint64(i)})
		leases = append(leases, held[key].Lease)
	}
	if err := s.Claim(ctx, tenant, claims); err != nil {
		t.Fatal(err)
	}
	lost, err := s.Renew(ctx, tenant, leases)
	f.want("renew", []any{[]string(nil), error(nil)}, []any{lost, err})

	fetch := func(ranges []engine.Range, want func(key string) []uint64) {
		t.Helper()
		got, err := s.Fetch(ctx, tenant, ranges)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			var offsets []uint64
			for _, m := range got[i].Messages {
				offsets = append(offsets, m.Offset)
				if m.PartitionKey != key || m.Tenant != tenant || m.Topic != topic {
					t.Errorf("partition %q has a message of %q", key, m.PartitionKey)
				}
			}
			f.want(fmt.Sprintf("fetched of %q", key), want(key), offsets)
		}
	}
	var all, short, only []engine.Range
	for _, key := range keys {
		r := run[key]
		all = append(all, engine.Range{Key: key, Through: engine.Unbounded, Limit: each - 1})
		short = append(short, engine.Range{Key: key, After: r[0], Through: r[2], Limit: 1000})
		only = append(only, engine.Range{Key: key, Only: []uint64{r[1], r[3]}})
	}
	fetch(all, func(key string) []uint64 { return run[key][:each-1] })
	fetch(short, func(key string) []uint64 { return run[key][1:3] })
	fetch(only, func(key string) []uint64 { return []uint64{run[key][1], run[key][3]} })

	// Settle in part, with a state and a dead letter each.
	var settlements []engine.Settlement
	got, err := s.Fetch(ctx, tenant, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		settlements = append(settlements, engine.Settlement{
			Lease: held[key].Lease, Run: run[key][:2], States: []engine.State{{Offset: run[key][3], Attempts: i}},
			DeadLetters: []engine.DeadLetter{{Message: got[i].Messages[0].Message, Attempts: 1, Error: key}},
		})
	}
	results, err := s.Settle(ctx, tenant, settlements)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		f.want(fmt.Sprintf("settled %q", key), engine.Settled{Watermark: run[key][1], Stored: true}, results[i])
	}
	for _, key := range keys {
		dead := f.unregistered(topic+backend.DefaultDeadLetterSuffix, group, name)
		letters, err := dead.Fetch(ctx, tenant, []engine.Range{{Key: key, Through: engine.Unbounded, Limit: 10}})
		if err != nil {
			t.Fatal(err)
		}
		if m := letters[0].Messages; len(m) != 1 || m[0].ID != key || m[0].Failure.LastError != key || m[0].Failure.Group != group {
			t.Errorf("dead letters of %q: %+v", key, m)
		}
	}

	// A take-over finds it all.
	mustExec(t, f.db, "UPDATE queue_partition_leases SET lease_expires_at = 1")
	held = grants(other)
	for i, key := range keys {
		g := held[key]
		want := engine.Grant{
			Lease: g.Lease, Watermark: run[key][1], Stored: true, States: []engine.State{{Offset: run[key][3], Attempts: i}},
		}
		if claimed := run[key][0] + uint64(i); claimed > want.Watermark {
			want.Suspect = claimed
		}
		f.want(fmt.Sprintf("grant of %q", key), want, g)
	}
	for i, key := range keys {
		settlements[i] = engine.Settlement{Lease: held[key].Lease, Watermark: run[key][1], Stored: true, Run: run[key][2:], HasStates: true, Drained: true}
	}
	results, err = other.Settle(ctx, tenant, settlements)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		f.want(fmt.Sprintf("drained %q", key), engine.Settled{Drained: true}, results[i])
	}
	for table, rows := range dump(t, f.db) {
		for _, row := range rows {
			registration := table == "queue_offsets" && strings.Contains(row, `partition_key="" `)
			if table != "queue_messages" && !registration {
				t.Errorf("left in %s: %s", table, row)
			}
		}
	}
}
