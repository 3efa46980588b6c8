//go:build vitess

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
	"github.com/tenantmq/tenantmq/tenants"
)

// What docs/mqctl.md says of vtgate.
const vitessConfig = "mq:\n  external_schema: true\n  server_isolation: true\n"

func newVitessFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{TB: t, dsn: os.Getenv(vitesstest.EnvDSN), config: filepath.Join(t.TempDir(), "vitess.yaml")}
	if f.dsn == "" {
		t.Fatalf("%s names no cluster; make test-vitess starts one", vitesstest.EnvDSN)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	f.ctx = ctx
	f.check(os.WriteFile(f.config, []byte(vitessConfig), 0o600))
	db, err := mysql.Open(f.dsn, mysql.ServerIsolation())
	f.check(err)
	t.Cleanup(func() { f.check(db.Close()) })
	f.db = db
	for _, table := range []string{"queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases", "queue_subscriber_heartbeats"} {
		f.exec("TRUNCATE TABLE " + table)
	}
	set, err := tenants.New(acme, globex)
	f.check(err)
	f.Queue, err = mysql.NewQueue(mysql.Params{DB: db, Tenants: set, Config: mysql.Config{ExternalSchema: true}})
	f.check(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = f.Close(ctx) // it may count deliveries that the test has left in flight
	})
	return f
}

func TestVitessCommands(t *testing.T) {
	f := newVitessFixture(t)
	f.bury("a", "b", "c")
	sub := f.subscribe()
	f.publish(acme, orders, "waits", "w1", "w2")
	f.next(sub) // and keep it
	f.publish(globex, "parcels", "k", "p1")

	// Both tenants in one listing, wherever they are.
	topics := decode[[]topicRow](f.run("topics", "--all-tenants", "--json").want(exitDone))
	got := make(map[string]int)
	for _, row := range topics {
		got[row.Tenant+"/"+row.Topic] = row.Messages.N
	}
	f.equal("topics", map[string]int{"acme/orders": 2, "acme/orders_dlq": 3, "globex/orders": 0, "globex/parcels": 1}, got)
	f.run("lag", "--all-tenants").want(exitDone, "acme", orders, billing)
	f.run("groups", "--tenant", "acme").want(exitDone, orders, billing)
	f.run("offsets", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone, "waits")
	f.run("leases", "--tenant", "acme").want(exitDone, "waits", "held")
	f.run("subscribers", "--tenant", "acme").want(exitDone, "billing-1")
	f.run("message", "list", "--tenant", "acme", "--topic", orders, "--key", "waits").want(exitDone, "w1", "w2")
	f.run("message", "show", "--tenant", "acme", "--topic", orders, "--key", "waits", "--id", "w1").want(exitDone, "payload of w1")
	f.run("deadletters", "--tenant", "acme").want(exitDone, "no handler for a", "no handler for c")
	f.stop(sub)

	f.run("message", "redrive", "--tenant", "acme", "--topic", dead, "--key", "key of a", "--id", "a").want(exitDone)
	f.run("deadletter", "redrive", "--yes", "--tenant", "acme", "--topic", dead, "--limit", "1").want(exitDone, "1")
	f.equal("dead letters left", 1, f.stored(dead))
	f.equal("messages", 4, f.stored(orders))
	f.run("message", "delete", "--yes", "--tenant", "acme", "--topic", orders, "--key", "waits", "--id", "w1").want(exitDone)
	f.equal("messages after the deletion", 3, f.stored(orders))
	f.feed(`{"id": "new", "partition_key": "k", "payload": "x"}`+"\n", "message", "publish", "--tenant", "acme", "--topic", orders).want(exitDone)
	f.run("pause", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone)
	f.run("resume", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone)
	f.run("purge", "--yes", "--tenant", "acme", "--topic", orders).want(exitDone, "purged 4 messages")
	f.equal("messages after the purge", 0, f.stored(orders))
	f.run("group", "drop", "--yes", "--tenant", "acme", "--topic", orders, "--group", billing).want(exitDone)
}

func TestVitessDoctorIsContent(t *testing.T) {
	f := newVitessFixture(t)
	for _, row := range decode[[]findingRow](f.run("doctor", "--all-tenants", "--json").want(exitDone)) {
		if row.Severity != "ok" {
			t.Errorf("%+v", row)
		}
	}
	f.run("validate").want(exitDone, "ok")
	f.run("migrate", "status").want(exitDone, "no version is looked at")
}

// The tables are ApplySchema's to make.
func TestVitessMigrateSaysWhoDoes(t *testing.T) {
	f := newVitessFixture(t)
	f.run("migrate", "up").want(exitUsage, "mq.external_schema is true", "mqctl migrate sql --vitess", "ApplySchema", "ApplyVSchema")
	r := f.run("migrate", "sql", "--vitess").want(exitDone, "CREATE TABLE", "-- VSchema, for ApplyVSchema:", `"xxhash"`)
	if strings.Contains(r.stdout, "mq_schema_version") {
		t.Errorf("it has a table that no shard can keep: %s", r.stdout)
	}
	f.config = "" // the settings are told one by one
	for _, command := range []string{"validate", "doctor --all-tenants", "migrate up"} {
		args := strings.Fields(command)
		f.run(args...).want(exitFailed, "over MariaDB mq.server_isolation, set to true")
	}
	f.config = filepath.Join(t.TempDir(), "half.yaml")
	f.check(os.WriteFile(f.config, []byte("mq:\n  server_isolation: true\n"), 0o600))
	for _, command := range []string{"validate", "doctor --all-tenants", "migrate up", "migrate status"} {
		f.run(strings.Fields(command)...).want(exitFailed, "vtgate needs mq.external_schema", "ApplySchema")
	}
}

// The tables of one shard are not the queue's, nor for mqctl to make.
func TestVitessOneShardIsRefused(t *testing.T) {
	f := newVitessFixture(t)
	var shard string
	f.check(f.db.QueryRowContext(f.ctx, "SHOW VITESS_SHARDS").Scan(&shard)) // the first, as keyspace/shard
	f.dsn = f.dsn[:strings.LastIndex(f.dsn, "/")+1] + strings.Replace(shard, "/", ":", 1)
	f.run("validate").want(exitFailed, `name the keyspace, "mq"`)
	r := f.run("doctor", "--tenant", "acme").want(exitFailed, `name the keyspace, "mq"`)
	if strings.Contains(r.stdout, "migrate up") {
		t.Errorf("it has the tables made: %s", r.stdout)
	}
}
