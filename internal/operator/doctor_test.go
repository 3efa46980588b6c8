package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// by are the findings of a check.
func by(findings []Finding, check string) (found []Finding) {
	for _, f := range findings {
		if f.Check == check {
			found = append(found, f)
		}
	}
	return found
}

func TestDoctorFindsNothingWrongWhereNothingIs(t *testing.T) {
	f := newFixture(t)
	f.load(acme, orders, 50, 2_000)
	f.register(orders, billing)
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 's', 1, 1, "+nowMillis+" + 60000)", string(acme), billing, orders)
	seen := make(map[string]bool)
	for _, finding := range f.Doctor(f.ctx, []tenants.ID{acme}) {
		seen[finding.Check] = true
		if finding.Severity == Bad || finding.Severity == Warn && finding.Check != "transactions" { // of others on the server
			t.Errorf("%+v", finding)
		}
		if (finding.Remedy == "") != (finding.Severity == OK) || finding.Found == "" {
			t.Errorf("a remedy is for what is not well: %+v", finding)
		}
	}
	for _, check := range []string{
		"database", "schema", "server", "isolation", "sql_mode", "packet", "writes", "clock", "replication", "transactions", "history", "tables", "privileges",
		"leases", "groups", "lag", "failures", "handlers", "dead letters", "topics", "redriven", "plans",
	} {
		if !seen[check] {
			t.Errorf("nothing is said of %s", check)
		}
	}
}

func TestDoctorFindsStuckWork(t *testing.T) {
	f := newFixture(t)
	f.register(orders, billing, audit)
	f.publish(orders, "a", "1", "2")
	f.publish(orders, "b", "1")
	f.check(f.q.Pause(f.ctx, acme, orders, audit))
	for _, key := range []string{"a", "b", "drained"} {
		f.exec("INSERT INTO queue_partition_leases VALUES (?, ?, ?, ?, 's-1', 7, 1, 1000, 1, 5, 3)", string(acme), billing, orders, key)
	}
	findings := f.Doctor(f.ctx, []tenants.ID{"nobody", acme})
	leases := by(findings, "leases")
	if len(leases) != 1 || leases[0].Severity != Warn || !strings.HasPrefix(leases[0].Found, `2 partitions with work and an expired lease: tenant "acme", topic "orders", group "billing"`) ||
		!strings.Contains(leases[0].Found, `"a" of "s-1"`) {
		t.Errorf("leases: %+v", leases)
	}
	groups := by(findings, "groups")
	if len(groups) != 2 || groups[0].Severity != Warn || !strings.Contains(groups[0].Found, `"audit"`) || !strings.Contains(groups[0].Found, "been paused, and 3 messages") ||
		groups[1].Severity != Bad || !strings.Contains(groups[1].Found, `"billing"`) {
		t.Errorf("groups: %+v", groups)
	}
	f.exec("INSERT INTO queue_subscriber_heartbeats VALUES (?, ?, ?, 's', 1, 1, "+nowMillis+" + 60000)", string(acme), billing, orders)
	if groups := by(f.Doctor(f.ctx, []tenants.ID{acme}), "groups"); len(groups) != 1 {
		t.Errorf("with a subscriber: %+v", groups)
	}
}

func TestDoctorBoundsWhatItSays(t *testing.T) {
	f := newFixture(t)
	for i := range maxFindings + 3 {
		f.register(orders, fmt.Sprintf("g%02d", i))
	}
	f.publish(orders, "a", "1")
	groups := by(f.Doctor(f.ctx, []tenants.ID{acme}), "groups")
	if len(groups) != maxFindings+1 || groups[maxFindings].Found != "there are 3 more" {
		t.Errorf("%d findings, the last %+v", len(groups), groups[len(groups)-1])
	}
}

func TestDoctorNamesWhoHasATransactionOpen(t *testing.T) {
	f := newFixture(t)
	tx, err := f.tables[0].BeginTx(f.ctx, nil)
	f.check(err)
	defer tx.Rollback()
	_, err = tx.ExecContext(f.ctx, "INSERT INTO queue_subscriber_heartbeats VALUES ('t', 'g', 'o', 's', 1, 1, 1)")
	f.check(err)
	var thread int
	f.check(tx.QueryRowContext(f.ctx, "SELECT CONNECTION_ID()").Scan(&thread))
	// The server looks at its transactions only if nobody has asked for 100 ms.
	f.eventuallyEvery(150*time.Millisecond, fmt.Sprintf("thread %d is named", thread), func() bool {
		e := &examination{Operator: f.Operator}
		e.reach(f.ctx)
		e.eachServer(f.ctx, e.transactions)
		for _, finding := range e.findings {
			if !strings.Contains(finding.Found, fmt.Sprintf("thread %d of ", thread)) || !strings.Contains(finding.Found, "changed 1") {
				continue
			}
			if !strings.HasSuffix(finding.Remedy, fmt.Sprintf(": KILL %d", thread)) {
				t.Errorf("remedy: %s", finding.Remedy)
			}
			return finding.Severity == Warn
		}
		return false
	})
}

func TestDoctorOfWhatDoesNotWork(t *testing.T) {
	server := testdb.StartServer(t, "read-only=1", "sql-mode=", "max-allowed-packet=1M", "transaction-isolation=READ-COMMITTED")
	db, err := mysql.Open(server.Database(t), mysql.ServerIsolation())
	if err != nil {
		t.Fatal(err)
	}
	q, err := mysql.NewQueue(mysql.Params{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	o := New(db, q)
	findings := o.Doctor(t.Context(), []tenants.ID{acme})
	for _, check := range []string{"database", "schema", "isolation", "sql_mode", "packet", "writes"} {
		if found := by(findings, check); len(found) != 1 || found[0].Severity != Bad {
			t.Errorf("%s: %+v", check, found)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if findings := o.Doctor(t.Context(), nil); len(findings) != 1 || findings[0].Severity != Bad {
		t.Errorf("without a database: %+v", findings)
	}
}

// The check of the schema says what cures it, for every way in which it can be
// wrong, and the cures do.
func TestDoctorSaysWhatCuresTheSchema(t *testing.T) {
	f := newFixture(t)
	doctor := func(severity Severity, words ...string) {
		t.Helper()
		findings := f.Doctor(f.ctx, []tenants.ID{acme})
		f.about(findings, "schema", severity, words...)
		for _, finding := range findings {
			if strings.Contains(finding.Remedy, "Vitess") || strings.Contains(finding.Found+finding.Remedy, "mysql.Migrate") {
				t.Errorf("%+v", finding)
			}
		}
	}
	cure := func() {
		t.Helper()
		f.check(mysql.Migrate(f.ctx, f.db))
		doctor(OK)
	}
	f.exec("UPDATE mq_schema_version SET version_id = version_id + 1 WHERE version_id = ?", mysql.SchemaVersion)
	doctor(Bad, "deploy the release that migrated them")
	f.exec("UPDATE mq_schema_version SET version_id = version_id - 1 WHERE version_id = ?", mysql.SchemaVersion+1)
	doctor(OK)

	f.exec("DROP TABLE queue_offsets, queue_messages")
	doctor(Bad, "restore them from a backup; or if the queue is empty, DROP TABLE mq_schema_version and run `mqctl migrate up`")
	f.exec("DROP TABLE mq_schema_version")
	cure()

	f.exec("DROP TABLE queue_messages, queue_offsets, queue_delivery_state, queue_partition_leases, queue_subscriber_heartbeats, mq_schema_version")
	doctor(Bad, "tables are missing", "`mqctl migrate up`")
	cure()
}

func TestDoctorFindsAUserWhoMayNotWrite(t *testing.T) {
	f := newFixture(t)
	cfg, err := driver.ParseDSN(f.dsn)
	f.check(err)
	cfg.User, cfg.Passwd = "r_"+cfg.DBName[max(len(cfg.DBName)-20, 0):], "secret"
	user := "'" + cfg.User + "'@'%'"
	f.exec("CREATE USER " + user + " IDENTIFIED BY 'secret'")
	t.Cleanup(func() {
		if _, err := f.db.Exec("DROP USER " + user); err != nil {
			t.Error(err)
		}
	})
	f.exec("GRANT SELECT, INSERT, UPDATE ON `" + cfg.DBName + "`.* TO " + user)
	db, err := mysql.Open(cfg.FormatDSN())
	f.check(err)
	defer db.Close()
	db.SetMaxIdleConns(0) // since a session keeps what it was granted
	q, err := mysql.NewQueue(mysql.Params{DB: db})
	f.check(err)
	defer func() { f.check(q.Close(f.ctx)) }()
	o := New(db, q)
	f.about(o.Doctor(f.ctx, nil), "privileges", Bad, cfg.User, "may not DELETE on queue_messages, DELETE on queue_delivery_state", "GRANT SELECT, INSERT, UPDATE, DELETE")
	f.exec("GRANT DELETE ON `" + cfg.DBName + "`.* TO " + user)
	f.about(o.Doctor(f.ctx, nil), "privileges", OK, cfg.User)
	f.exec("REVOKE INSERT, UPDATE ON `" + cfg.DBName + "`.* FROM " + user)
	f.about(o.Doctor(f.ctx, nil), "privileges", Bad, "INSERT on queue_messages", "UPDATE on queue_offsets")
}

// The probes wait for nobody's locks, and leave none.
func TestProbesOfPrivilegesLockNothing(t *testing.T) {
	f := newFixture(t)
	f.publish(orders, "a", "a1")
	f.register(orders, billing)
	tx, err := f.db.BeginTx(f.ctx, nil)
	f.check(err)
	defer tx.Rollback()
	for _, table := range []string{"queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats"} {
		must[[]string](f)(read(f.ctx, tx, newQuery("SELECT tenant FROM "+table+" FOR UPDATE"), single[string])) // all of it, gaps too
	}
	conn, err := f.tables[0].Conn(f.ctx)
	f.check(err)
	defer conn.Close()
	_, err = conn.ExecContext(f.ctx, "SET SESSION innodb_lock_wait_timeout = 1")
	f.check(err)
	for _, probe := range stmtWriteProbes {
		if _, err := conn.ExecContext(f.ctx, probe); err != nil {
			t.Errorf("%s: %v", probe, err)
		}
	}
	f.want("messages", 1, f.number("SELECT COUNT(*) FROM queue_messages"))
}
