package mysql

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// What the server says about every statement that the delivery side sends, in a
// table that holds little and in one that holds much: none may scan a table or
// an index, sort rows in memory, or lock more than it names.
func TestEveryStatementUsesItsIndex(t *testing.T) {
	server := testdb.StartServer(t, "log-output=TABLE")
	for name, c := range map[string]struct{ partitions, deep, beside int }{
		"a table with a few rows": {3, 4, 0},
		"a table with many rows":  {150, 60, 3_000},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, server.Database(t))
			if err := Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			f := fixtureOn(t, newTestQueue(t, Params{DB: db}), db)
			for i := range c.beside {
				// Fifty a partition: with a few the optimizer would rather read them all.
				key := fmt.Sprintf("key-%d", i%60)
				mustExec(t, db, stmtInsert+insertRow, "stranger", topicA, key, fmt.Sprint(i), []byte("x"), "{}", i)
				mustExec(t, db, stmtSetStates+ackedRow, "stranger", groupA, topicA, key, i)
				if i < 60 {
					mustExec(t, db, stmtSetMarks+markRow, "stranger", topicA, key, groupA, i)
					mustExec(t, db, stmtLease+leaseRow, "stranger", groupA, topicA, key, "s", 1, 1000, i)
				}
			}
			mustExec(t, db, "TRUNCATE TABLE mysql.general_log")
			mustExec(t, db, "SET GLOBAL general_log = ON")
			exerciseStore(f, c.partitions, c.deep)
			mustExec(t, db, "SET GLOBAL general_log = OFF")
			// A table that looks empty to the optimizer may be scanned for all it cares.
			mustExec(t, db, "ANALYZE TABLE queue_delivery_state, queue_offsets, queue_partition_leases")

			explained := 0
			for _, statement := range logged(t, db) {
				plan := explain(t, db, statement)
				explained++
				for _, problem := range problems(statement, plan) {
					t.Errorf("%s\n%s\n%+v", problem, shorten(statement), plan)
				}
			}
			if explained < 30 {
				t.Errorf("only %d kinds of statements were seen", explained)
			}
		})
	}
}

// exerciseStore makes a store of either of two groups do all it can.
func exerciseStore(f *fixture, partitions, deep int) {
	f.Helper()
	ctx := f.Context()
	check := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	a, b := f.store(groupA, "a"), f.store(groupB, "b", latest)
	list := []tenants.ID{tenantA, "other", "nobody"}
	check(f.unregistered(topicA, "third", "c", latest).Register(ctx, list))
	check(f.q.DropGroup(ctx, tenantA, topicA, "third"))
	keys := partitionKeys(partitions)
	runs := make(map[string][]uint64)
	for _, key := range keys {
		runs[key] = f.publish(key, deep)
	}
	f.discover(a, list[:1], "", 1000)
	f.discover(a, list[:1], keys[0], 10)
	f.discover(a, list, "", 1000)
	for _, s := range []*store{a, b} {
		check(s.Beat(ctx, tenantA))
		_, err := s.Control(ctx, list)
		check(err)
	}
	for _, list := range [][]tenants.ID{list, list[:1]} {
		_, err := a.Lag(ctx, list)
		check(err)
	}
	open := make([]pending, len(keys))
	for i, key := range keys {
		open[i] = pending{key: key, tail: runs[key][deep-1]}
	}
	check((&lagOf{store: a, tenant: tenantA, skipped: open}).findOldest(ctx))
	settle := func(s *store, drained bool) {
		f.Helper()
		var settlements []engine.Settlement
		var leases []engine.Lease
		var claims []engine.Claim
		var ranges []engine.Range
		var candidates []engine.Candidate
		for _, key := range keys {
			candidates = append(candidates, engine.Candidate{Key: key})
		}
		for _, g := range f.acquire(s, candidates...).Grants {
			run := runs[g.Key]
			first, _ := slices.BinarySearch(run, g.Watermark+1)
			run = run[first:]
			leases = append(leases, g.Lease)
			claims = append(claims, engine.Claim{Lease: g.Lease, Offset: 9})
			ranges = append(ranges, engine.Range{Key: g.Key, Through: engine.Unbounded, Limit: 5})
			settlement := engine.Settlement{Lease: g.Lease, Run: run, HasStates: true, Watermark: g.Watermark, Stored: g.Stored, Drained: true}
			if !drained && len(run) > 3 {
				m := f.fetch(s, engine.Range{Key: g.Key, Only: run[:1]})[0].Messages[0].Message
				settlement.Run, settlement.Drained = run[:len(run)-2], false
				settlement.States = []engine.State{{Offset: run[len(run)-1], Settled: true}}
				settlement.DeadLetters = []engine.DeadLetter{{Message: m, Error: "no"}}
			}
			settlements = append(settlements, settlement)
		}
		f.renew(s, leases...)
		check(s.Claim(ctx, tenantA, claims))
		f.fetch(s, ranges...)
		for i := range ranges {
			ranges[i].Through, ranges[i].Limit = 100, 1000
		}
		f.fetch(s, ranges...)
		f.settle(s, settlements...)
		for i, l := range leases {
			f.release(s, engine.Release{Lease: l, Forget: i%2 == 0})
		}
	}
	settle(a, false)
	settle(b, false)
	settle(a, false)
	settle(a, true)
	settle(b, true)
	for _, key := range keys[:1] {
		passed := engine.Passed{Key: key}
		passed.Watermark, passed.Stored = f.mark(groupA, key)
		f.collect(a, passed)
	}
	run := f.publish("single", 2)
	check(f.q.DropGroup(ctx, tenantA, topicA, groupB))
	g := f.grant(a, "single", 0)
	f.settle(a, engine.Settlement{Lease: g.Lease, Run: run, Drained: true})

	// Leftovers for the purge.
	g = f.grant(a, "left", 0)
	f.settle(a, engine.Settlement{Lease: g.Lease, States: []engine.State{{Offset: 1 << 40, Attempts: 1}}})
	f.release(a, engine.Release{Lease: g.Lease})
	mustExec(f, f.db, "INSERT INTO queue_offsets (tenant, topic, partition_key, consumer_group, offset_acked, updated_at) VALUES (?, ?, 'left', ?, 1, 0)",
		string(tenantA), topicA, groupA)
	mustExec(f, f.db, "UPDATE queue_subscriber_heartbeats SET expires_at = 1 WHERE tenant = ?", string(tenantA))
	for range 2 {
		check(a.Purge(ctx, list))
	}
	check(a.Leave(ctx, tenantA))
	check(f.q.Pause(ctx, tenantA, topicA, groupA))
	check(f.q.Redrive(ctx, tenantA, topicDead, f.letterKey(), f.letters(f.letterKey())[0].ID))
}

func (f *fixture) letterKey() string {
	f.Helper()
	var key string
	err := f.db.QueryRowContext(f.Context(), "SELECT MIN(partition_key) FROM queue_messages WHERE topic = ?", topicDead).Scan(&key)
	if err != nil {
		f.Fatal(err)
	}
	return key
}

// logged returns one statement of each kind on the queue's tables, the longest.
func logged(t testing.TB, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT argument FROM mysql.general_log WHERE command_type = 'Query'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	kinds := make(map[string]string)
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			t.Fatal(err)
		}
		verb, _, _ := strings.Cut(statement, " ")
		if !strings.Contains(statement, "queue_") || !slices.Contains([]string{"SELECT", "(SELECT", "UPDATE", "DELETE"}, verb) ||
			!strings.Contains(statement, "tenant") || strings.Contains(statement, "expires_at = 1 WHERE") || strings.Contains(statement, "SELECT MIN(partition_key)") {
			continue // what the test does itself, and what has no plan
		}
		if strings.Contains(statement, "publish_id = ") {
			continue // publishing has tests of its own
		}
		kind := kindOf(statement)
		if len(statement) > len(kinds[kind]) && len(statement) < 1<<20 {
			kinds[kind] = statement
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	var statements []string
	for _, s := range kinds {
		statements = append(statements, s)
	}
	return statements
}

var literals = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|\b\d+\b`)

// kindOf is a statement without its values and the repetitions of its lists.
func kindOf(statement string) string {
	kind := literals.ReplaceAllString(statement, "?")
	for _, entry := range []string{
		" UNION ALL SELECT ? AS k, ? AS n", " UNION ALL SELECT ? AS k", ", ?", " WHEN ? THEN ?", " OR (partition_key = ? AND message_offset <= ?)",
		" OR (partition_key = ? AND `offset` <= ?)", " OR (m.partition_key = ? AND m.`offset` > ? AND m.`offset` <= ?)", " OR (partition_key = ? AND `offset` > ? AND `offset` <= ?)", " OR (partition_key = ? AND id = ?)",
	} {
		kind = strings.ReplaceAll(kind, entry, "")
	}
	for _, branch := range []string{" UNION ALL (SELECT partition_key", " UNION ALL (SELECT m.", " OR (partition_key = ? AND `offset` > ? AND `offset` <= ?))"} {
		kind, _, _ = strings.Cut(kind, branch)
	}
	return kind
}

// step is a line of an execution plan.
type step struct{ table, access, key, keyLength, rows, extra string }

func explain(t testing.TB, db querier, statement string) []step {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+statement)
	if err != nil {
		t.Fatalf("EXPLAIN %s: %v", shorten(statement), err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for rows.Next() {
		values := make(map[string]*sql.NullString)
		var dest []any
		for _, c := range columns {
			values[c] = new(sql.NullString)
			dest = append(dest, values[c])
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step{
			values["table"].String, values["type"].String, values["key"].String, values["key_len"].String, values["rows"].String, values["Extra"].String,
		})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// problems holds a plan against what the statement is to do.
func problems(statement string, plan []step) (found []string) {
	changes := strings.HasPrefix(statement, "UPDATE") || strings.HasPrefix(statement, "DELETE") ||
		strings.HasSuffix(statement, "FOR UPDATE") || strings.HasSuffix(statement, "NOWAIT") || strings.HasSuffix(statement, "SHARE MODE")
	listed := strings.Contains(statement, " AS v STRAIGHT_JOIN ")
	for _, s := range plan {
		if s.table == "" || strings.HasPrefix(s.table, "<") {
			continue // the list itself, or constant
		}
		if s.access == "ALL" || s.access == "index" {
			found = append(found, "it scans "+s.table)
		}
		if s.key != "PRIMARY" && s.key != "uq_message" {
			found = append(found, "it goes by "+s.key)
		}
		if strings.Contains(s.extra, "filesort") || strings.Contains(s.extra, "temporary") {
			found = append(found, "it sorts: "+s.extra)
		}
		if listed && s.access != "eq_ref" && s.access != "const" && s.access != "system" {
			found = append(found, "it looks rows up by "+s.access)
		}
		if changes && !listed && !slices.Contains([]string{"const", "eq_ref", "range"}, s.access) {
			found = append(found, "it locks by "+s.access)
		}
	}
	// Of a few rows the server may rather read all.
	if strings.Contains(statement, "GROUP BY") && !slices.ContainsFunc(plan, func(s step) bool {
		return strings.Contains(s.extra, "Using index for group-by") || s.table == "queue_messages" && len(s.rows) == 1
	}) {
		found = append(found, "it reads every row of a partition")
	}
	return found
}

func shorten(statement string) string {
	if len(statement) > 700 {
		return statement[:500] + " … " + statement[len(statement)-200:]
	}
	return statement
}
