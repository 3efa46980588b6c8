package operator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// Bounds of what is well.
const (
	maxTransaction = 10 * time.Second
	maxClockOffset = time.Second
	highHistory    = 100_000
	fullHistory    = 1_000_000
)

// reach finds out whether the queue can work here at all.
func (e *examination) reach(ctx context.Context) bool {
	const check = "database"
	err := e.q.Verify(ctx)
	e.verified = err
	unset, onVitess := errors.AsType[*mysql.VitessError](err)
	var refused error
	if err != nil {
		refused = e.db.PingContext(ctx)
	}
	if refused != nil {
		_, answered := errors.AsType[*driver.MySQLError](refused)
		switch {
		case onVitess:
			e.find(check, Bad, unset.Remedy, "vtgate refuses the connection: %v", unset.Err)
		case answered:
			e.find(check, Bad, "do what the error says, or correct the DSN", "it refuses the connection: %v", refused)
		default:
			e.find(check, Bad, "start the server, or correct the DSN", "it does not answer: %v", refused)
		}
		return false
	}
	shards, shardsErr := e.shards(ctx)
	e.keyspace = shards
	switch {
	case shardsErr != nil:
		e.find(check, Bad, "do what the error says, or see whether vtgate serves", "%v", shardsErr)
		return false
	case err == nil:
		e.ok(check, "the queue accepts it")
	case onVitess:
		e.find(check, Bad, unset.Remedy, "the queue refuses it: %v", unset.Err)
	case schemaKind(err) != nil:
		e.find(check, Bad, "see the check of the schema", "the queue refuses it: %v", schemaKind(err))
	default:
		e.find(check, Bad, "do what the error says", "%v", err)
	}
	return true
}

func (e *examination) schema(ctx context.Context) {
	const check = "schema"
	if _, unset := errors.AsType[*mysql.VitessError](e.verified); unset {
		e.find(check, Warn, "see the check of the database", "not looked at: the queue is not set up for Vitess")
		return
	}
	s, err := mysql.Status(ctx, e.db)
	switch {
	case err != nil && e.onVitess() && e.verified == nil:
		e.ok(check, "the keyspace records no version; its tables have what this release needs, version %d", mysql.SchemaVersion)
	case err != nil && e.onVitess() && schemaKind(e.verified) != nil:
		e.find(check, Bad, "apply what "+mqctl("migrate sql --vitess")+" prints: the statements by ApplySchema, the VSchema by ApplyVSchema", "%v", e.verified)
	case err != nil:
		e.blind(check, err, "see the check of the database")
	case s.Current == 0:
		e.find(check, Bad, mqctl("migrate up"), "the queue's tables are missing, or the table mq_schema_version with their version")
	case s.Current < s.Latest:
		e.find(check, Bad, mqctl("migrate up"), "version %d; this release works on %d", s.Current, s.Latest)
	case s.Current > s.Latest:
		e.find(check, Bad, "deploy the release that migrated them, and use its mqctl", "version %d; this release works on %d", s.Current, s.Latest)
	case errors.Is(e.verified, mysql.ErrSchemaMissing):
		e.find(check, Bad, "restore them from a backup; or if the queue is empty, DROP TABLE mq_schema_version and run "+mqctl("migrate up"),
			"version %d is recorded, and tables are missing", s.Current)
	default:
		e.ok(check, "version %d; this release works on %d", s.Current, s.Latest)
	}
}

func (e *examination) settings(ctx context.Context) {
	type row struct{ name, value string }
	rows, err := read(ctx, e.server, newQuery(stmtVariables), func(r *row) []any { return []any{&r.name, &r.value} })
	if err != nil {
		e.blind("server", err, "grant the user access to the server's variables")
		return
	}
	v := make(map[string]string, len(rows))
	for _, r := range rows {
		v[r.name] = r.value
	}
	e.ok("server", "%s, version %s (%s)", flavour(v), v["version"], v["version_comment"])

	level, ok := v["transaction_isolation"]
	if !ok {
		level = v["tx_isolation"]
	}
	e.judge("isolation", level == "REPEATABLE-READ", Bad, "set transaction_isolation to REPEATABLE-READ on the server, or in the DSN; below it the queue loses messages", "%s", level)

	modes := strings.Split(v["sql_mode"], ",")
	strict := slices.Contains(modes, "STRICT_TRANS_TABLES") || slices.Contains(modes, "STRICT_ALL_TABLES")
	e.judge("sql_mode", strict, Bad, "add STRICT_TRANS_TABLES: without it values that do not fit are cut short", "%s", v["sql_mode"])

	payload := e.MaxPayload
	if payload == 0 {
		payload = mysql.DefaultMaxPayload
	}
	packet, err := strconv.Atoi(v["max_allowed_packet"])
	e.judge("packet", err != nil || packet > 2*payload, Bad, // a server may not say

		"raise max_allowed_packet on the server, since escaping can double a payload, or lower the max payload",
		"max_allowed_packet is %s bytes, and the max payload %d", v["max_allowed_packet"], payload)

	var on []string
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if value := strings.ToUpper(v[name]); value != "" && value != "OFF" && value != "0" {
			on = append(on, name+" = "+v[name])
		}
	}
	if len(on) == 0 {
		on = []string{"the server takes writes"}
	}
	e.judge("writes", on[0] == "the server takes writes", Bad, "point the DSN to the primary, or after a failover switch the variable off", "%s", strings.Join(on, ", "))
}

func flavour(v map[string]string) string {
	both := v["version"] + v["version_comment"]
	for _, name := range []string{"Vitess", "MariaDB"} {
		if strings.Contains(both, name) || strings.Contains(both, strings.ToLower(name)) {
			return name
		}
	}
	return "MySQL"
}

// clock compares with the middle of the call, which its duration bounds the
// error of.
func (e *examination) clock(ctx context.Context) {
	const check = "clock"
	sent := time.Now()
	now, _, err := readOne(ctx, e.server, newQuery(stmtNow), single[int64])
	took := time.Since(sent)
	if err != nil {
		e.blind(check, err, "see the check of the database")
		return
	}
	offset := at(now).Sub(sent.Add(took / 2)).Round(time.Millisecond)
	e.judge(check, offset.Abs() <= maxClockOffset+took, Warn,
		"synchronise the clocks: the queue goes by the server's alone, but times in the logs of services do not compare with it",
		"the server's is %v ahead of this machine's, give or take %v", offset, (took / 2).Round(time.Microsecond))
}

func (e *examination) replication(ctx context.Context) {
	const check = "replication"
	status, err := e.replicaStatus(ctx, stmtReplica)
	if err != nil {
		status, err = e.replicaStatus(ctx, stmtReplicaOld)
	}
	switch {
	case err != nil:
		e.blind(check, err, "GRANT REPLICATION CLIENT (MySQL), or GRANT REPLICA MONITOR (MariaDB), to this user")
	case status == nil:
		e.ok(check, "the server replicates from nobody")
	default:
		source, lag := status["Master_Host"], status["Seconds_Behind_Master"]
		if source == "" {
			source, lag = status["Source_Host"], status["Seconds_Behind_Source"]
		}
		e.find(check, Warn, "point the DSN to the primary, unless this is one of several: what is written to a replica does not get to the others",
			"the server replicates from %q, %q seconds behind", source, lag)
	}
}

// replicaStatus is nil on a server that is no replica.
func (e *examination) replicaStatus(ctx context.Context, statement string) (map[string]string, error) {
	rows, err := e.server.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		return nil, errors.Join(err, rows.Err())
	}
	values, dest := make([]sql.Null[string], len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if err := rows.Scan(dest...); err != nil {
		return nil, err
	}
	status := make(map[string]string, len(columns))
	for i, name := range columns {
		status[name] = values[i].V
	}
	return status, nil
}

// transactions that stay open keep all that is deleted meanwhile in the tables,
// for reads to step over, and their locks hold others up. What they are doing is
// not shown: it may have a payload in it.
func (e *examination) transactions(ctx context.Context) {
	const check = "transactions"
	type row struct {
		thread, seconds, locked, modified int64
		user, host                        string
	}
	rows, err := read(ctx, e.server, newQuery(stmtTransactions, int64(e.patience.Seconds())), func(r *row) []any {
		return []any{&r.thread, &r.seconds, &r.locked, &r.modified, &r.user, &r.host}
	})
	if err != nil {
		e.blind(check, err, "GRANT PROCESS ON *.* to this user")
		return
	}
	for _, r := range rows {
		e.find(check, Warn, fmt.Sprintf("find out who it is and have him end it, or%s: KILL %d", e.thereOnly(), r.thread),
			"thread %d of user %q at %q has one open for %d s; it has locked %s and changed %d",
			r.thread, r.user, r.host, r.seconds, words(int(r.locked), "row"), r.modified)
	}
	if len(rows) == 0 {
		e.ok(check, "none is open for %v or longer", e.patience)
	}
}

func (e *examination) history(ctx context.Context) {
	const check = "history"
	type row struct {
		name string
		n    int
	}
	dest := func(r *row) []any { return []any{&r.name, &r.n} }
	r, found, err := readOne(ctx, e.server, newQuery(stmtHistory), dest)
	if err == nil && !found {
		r, found, err = readOne(ctx, e.server, newQuery(stmtHistoryMySQL), dest)
	}
	switch remedy := "end the transactions that are open for long: deleted rows are kept for them"; {
	case err != nil:
		e.blind(check, err, "GRANT PROCESS ON *.* to this user")
	case !found:
		e.ok(check, "the server does not tell the length of its history list")
	default:
		severity := Warn
		if r.n >= fullHistory {
			severity = Bad
		}
		e.judge(check, r.n < highHistory, severity, remedy, "the history list has %d entries", r.n)
	}
}

func (e *examination) sizes(ctx context.Context) {
	const check = "tables"
	type row struct {
		table            string
		rows, size, free int64
	}
	rows, err := read(ctx, e.server, newQuery(stmtSizes), func(r *row) []any { return []any{&r.table, &r.rows, &r.size, &r.free} })
	if err != nil {
		e.blind(check, err, "see the check of the database")
		return
	}
	for _, r := range rows {
		e.ok(check, "%s has about %d rows in %.1f MiB, %.1f MiB of them free", r.table, r.rows, float64(r.size)/(1<<20), float64(r.free)/(1<<20))
	}
}
