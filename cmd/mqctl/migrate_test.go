package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

func TestMigrate(t *testing.T) {
	f := &fixture{TB: t, dsn: testdb.DSN(t), ctx: t.Context()}
	f.run("topics", "--tenant", "acme").want(exitFailed, "mqctl migrate up brings its tables to this version")
	f.run("validate").want(exitFailed, "tables are missing", "mqctl migrate up")
	f.run("doctor", "--tenant", "acme").want(exitFailed, "bad", "tables are missing", "findings that are bad")

	status := decode[schemaDoc](f.run("migrate", "status", "--json").want(exitDone))
	if status.Current != 0 || status.Latest != mysql.SchemaVersion || len(status.Pending) == 0 {
		t.Errorf("of an empty database: %+v", status)
	}
	f.equal("up", migratedDoc{0, mysql.SchemaVersion}, decode[migratedDoc](f.run("migrate", "up", "--json").want(exitDone)))
	f.run("migrate", "up").want(exitDone, "at version 1 already")
	f.equal("status", schemaDoc{1, 1, []string{}}, decode[schemaDoc](f.run("migrate", "status", "--json").want(exitDone)))

	r := f.run("validate", "--json").want(exitDone)
	if doc := decode[validDoc](r); doc.Configuration != "ok" || !strings.HasPrefix(doc.Database, "mq@127.0.0.1") && !strings.Contains(doc.Database, "@") {
		t.Errorf("%+v", doc)
	}
}

// A version from the future, or one whose tables are not all there, is not taken
// for what this release works on.
func TestMigrateStatusOfTablesThatDoNotFit(t *testing.T) {
	f := newFixture(t)
	f.run("migrate", "status").want(exitDone, "version 1 of 1; pending: none")
	f.exec("DROP TABLE queue_subscriber_heartbeats")
	for _, command := range []string{"status", "up"} {
		r := f.run("migrate", command).want(exitFailed, "table queue_subscriber_heartbeats is not there", "mqctl migrate sql")
		if strings.Contains(r.stderr+r.stdout, "already") || strings.Contains(r.stderr, "migrate up") {
			t.Errorf("migrate %s: %s%s", command, r.stdout, r.stderr)
		}
	}
	f.exec("INSERT INTO mq_schema_version (version_id, is_applied) VALUES (9, 1)")
	f.run("migrate", "status").want(exitFailed, "version 9, newer than this release, which knows 1", "use the mqctl of the release")
	f.equal("in JSON", schemaDoc{9, 1, []string{}}, decode[schemaDoc](f.run("migrate", "status", "--json").want(exitFailed)))
}

func TestValidateTellsWhoMayNotWrite(t *testing.T) {
	f := newFixture(t)
	cfg, err := driver.ParseDSN(f.dsn)
	f.check(err)
	reader := "reader_of_" + cfg.DBName[max(0, len(cfg.DBName)-20):]
	f.exec("CREATE USER '" + reader + "'@'%' IDENTIFIED BY 'secret'")
	t.Cleanup(func() { _, _ = f.db.ExecContext(context.Background(), "DROP USER '"+reader+"'@'%'") })
	f.exec("GRANT SELECT ON `" + cfg.DBName + "`.* TO '" + reader + "'@'%'")
	cfg.User, cfg.Passwd = reader, "secret"
	finish(t, process(t, cfg.FormatDSN(), "validate")).want(exitFailed, "INSERT on queue_messages", "GRANT")

	cmd := process(t, f.dsn, "validate")
	cmd.Env = append(cmd.Env, "MQ_TENANTS=acme,,")
	finish(t, cmd).want(exitUsage, "MQ_TENANTS")
}

// What migrate sql prints makes tables that validate accepts, and it needs
// neither configuration nor database.
func TestMigrateSQL(t *testing.T) {
	cmd := process(t, "")
	cmd.Args = append(cmd.Args, "migrate", "sql")
	printed := finish(t, cmd).want(exitDone).stdout
	if printed != mysql.Schema() {
		t.Errorf("printed:\n%s", printed)
	}
	f := &fixture{TB: t, dsn: testdb.DSN(t), ctx: t.Context()}
	f.equal("in JSON", sqlDoc{SQL: printed}, decode[sqlDoc](f.run("migrate", "sql", "--json").want(exitDone)))
	f.equal("for Vitess", sqlDoc{mysql.VitessSchema(), mysql.VSchema()}, decode[sqlDoc](f.run("migrate", "sql", "--vitess", "--json").want(exitDone)))
	if text := f.run("migrate", "sql", "--vitess").want(exitDone).stdout; !strings.HasPrefix(text, mysql.VitessSchema()) || !strings.Contains(text, "\n-- {\n") {
		f.Errorf("for Vitess:\n%.2000s", text)
	}
}

func TestDoctor(t *testing.T) {
	f := newFixture(t)
	found := decode[[]findingRow](f.run("doctor", "--all-tenants", "--json"))
	checks := make(map[string]string)
	for _, r := range found {
		checks[r.Check] = r.Severity
		if r.Found == "" || (r.Remedy == "") != (r.Severity == "ok") {
			t.Errorf("%+v", r)
		}
	}
	if checks["database"] != "ok" || checks["schema"] != "ok" {
		t.Errorf("%+v", found)
	}
	// A lease of an owner that vanished, and nobody to take over.
	f.stop(f.subscribe())
	f.publish(acme, orders, "k", "m")
	f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, 'k', 'gone', 7, 1, 1000, 1000, 0, 0)", billing, orders)
	f.run("doctor", "--tenant", "acme").want(exitFailed, "bad", "→")
	finish(t, process(t, closedPort, "doctor", "--tenant", "acme")).want(exitFailed, "bad", "does not answer")
	missing := f.dsn[:strings.LastIndex(f.dsn, "/")] + "/mq_missing"
	finish(t, process(t, missing, "doctor", "--tenant", "acme")).want(exitFailed, "bad", "it refuses the connection", "create it")
}

// The files of --config count for what is published.
func TestLimitsComeFromTheConfiguration(t *testing.T) {
	f := newFixture(t)
	cmd := process(t, f.dsn, "message", "publish", "--tenant", "acme", "--topic", orders, "--config", "a.yaml")
	f.check(os.WriteFile(filepath.Join(cmd.Dir, "a.yaml"), []byte("mq: {publish: {max_payload: 3}}"), 0o600))
	cmd.Stdin = strings.NewReader(`{"id":"a","partition_key":"k","payload":"four"}`)
	finish(t, cmd).want(exitUsage, "the payload has 4 bytes; mq.publish.max_payload allows 3")

	cmd = process(t, f.dsn, "message", "publish", "--tenant", "acme", "--topic", orders, "--config", "a.yaml")
	f.check(os.WriteFile(filepath.Join(cmd.Dir, "a.yaml"), []byte("mq: {publish: {max_payload: 2000000}}"), 0o600))
	cmd.Stdin = strings.NewReader(`{"id":"a","partition_key":"k","payload":"` + strings.Repeat("x", 1_500_000) + `"}`)
	finish(t, cmd).want(exitDone, "published 1")
}

func TestTimeoutEndsWhatTheDatabaseDoesNotAnswer(t *testing.T) {
	f := newFixture(t)
	tx, err := f.db.BeginTx(f.ctx, nil)
	f.check(err)
	defer tx.Rollback()
	f.stop(f.subscribe())
	_, err = tx.ExecContext(f.ctx, "SELECT 1 FROM queue_offsets WHERE tenant = 'acme' FOR UPDATE")
	f.check(err)
	f.run("pause", "--timeout", "300ms", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitFailed, "--timeout 300ms is over")
}
