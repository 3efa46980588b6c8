package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/tenants"
)

// handle is a pool that the application has opened by itself. Its isolation is
// REPEATABLE READ, whatever the server's default, unless params have another;
// "isolation" stands for the server's name of that variable.
func handle(t testing.TB, dsn string, params map[string]string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	variable := "tx_isolation" // MariaDB before 11.1
	s, err := readSettings(t.Context(), openDB(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s["transaction_isolation"]; ok {
		variable = "transaction_isolation"
	}
	cfg.Params = map[string]string{variable: "'REPEATABLE-READ'"}
	for name, value := range params {
		if name == "isolation" {
			name = variable
		}
		cfg.Params[name] = value
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func someTenants(t testing.TB) tenants.Set {
	t.Helper()
	set, err := tenants.New("a", "b")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// An unsuitable handle is refused by Verify and, if nobody calls that, at the
// call, with the remedy. Nothing is stored.
func TestUnsuitableHandlesAreRefused(t *testing.T) {
	dsn := testdb.DSN(t)
	if err := Migrate(t.Context(), openDB(t, dsn)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		params map[string]string
		want   error
		text   string
	}{
		"read committed":   {map[string]string{"isolation": "'READ-COMMITTED'"}, ErrIsolation, "run in READ-COMMITTED"},
		"read uncommitted": {map[string]string{"isolation": "'READ-UNCOMMITTED'"}, ErrIsolation, "mysql.Open"},
		"serializable":     {map[string]string{"isolation": "'SERIALIZABLE'"}, ErrIsolation, "deadlocks"},
		"autocommit":       {map[string]string{"autocommit": "0"}, ErrServerSettings, "autocommit is OFF"},
		"character set":    {map[string]string{"character_set_client": "latin1"}, ErrServerSettings, "charset=utf8mb4"},
		"not strict":       {map[string]string{"sql_mode": "'NO_ENGINE_SUBSTITUTION'"}, ErrServerSettings, "add STRICT_TRANS_TABLES"},
	} {
		t.Run(name, func(t *testing.T) {
			db := handle(t, dsn, c.params)
			q := newTestQueue(t, Params{DB: db, Tenants: someTenants(t)})
			tx := begin(t, db)
			for call, do := range map[string]func() error{
				"Verify":    func() error { return q.Verify(t.Context()) },
				"Publish":   func() error { _, err := q.Publish(t.Context(), message("a", "t", "k", 1)); return err },
				"PublishTx": func() error { _, err := q.PublishTx(t.Context(), tx, message("a", "t", "k", 1)); return err },
				"Subscribe": func() error {
					_, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "g"})
					return err
				},
			} {
				if err := do(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: got %v", call, err)
				}
			}
			if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 0 {
				t.Errorf("%d messages stored", n)
			}
		})
	}
}

// A cap that the server cannot carry is refused before a message meets it; one
// that it can carry is carried, whatever the bytes.
func TestPacketSizeIsCheckedAgainstThePayloadCap(t *testing.T) {
	server := testdb.StartServer(t, "max-allowed-packet=16M")
	db := openDB(t, server.Database(t))
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]Config{
		"max payload of 15728640": {MaxPayload: MaxMaxPayload},
		"max batch bytes":         {MaxBatchBytes: MaxMaxBatchBytes},
	} {
		q := newTestQueue(t, Params{DB: db, Config: config})
		for _, err := range []error{q.Verify(t.Context()), publishError(t, q)} {
			if !errors.Is(err, ErrServerSettings) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "max_allowed_packet is 16777216 bytes") {
				t.Errorf("got %v", err)
			}
		}
	}
	q := newTestQueue(t, Params{DB: db, Config: Config{MaxPayload: 8<<20 - 32<<10}})
	m := message("a", "t", "k", 1)
	m.Payload = bytes.Repeat([]byte{'\''}, 8<<20-32<<10)
	mustPublish(t, q, m)
}

func publishError(t testing.TB, q *Queue) error {
	_, err := q.Publish(t.Context(), message("a", "t", "k", 1))
	return err
}

// A handle that is right for the queue without [Open].
func TestSuitableHandlesPass(t *testing.T) {
	dsn := testdb.DSN(t)
	if err := Migrate(t.Context(), openDB(t, dsn)); err != nil {
		t.Fatal(err)
	}
	for name, params := range map[string]map[string]string{
		"defaults": nil, "no backslash": {"sql_mode": "'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"}, "time zone": {"time_zone": "'+09:00'"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t, Params{DB: handle(t, dsn, params)})
			m := message("a", name, `k'\"`, 1)
			m.Payload = []byte("'\\\"\x00")
			if r := mustPublish(t, q, m, m); r[0].Duplicate || !r[1].Duplicate {
				t.Errorf("receipts %+v", r)
			}
		})
	}
}

func TestSchemaIsVerified(t *testing.T) {
	for name, c := range map[string]struct {
		change   string // statements on a migrated database; "" for an empty one
		external bool
		want     error
		text     string
	}{
		"missing":              {"", false, ErrSchemaMissing, `call mysql.Migrate, or apply backend/mysql/schema.sql`},
		"newer":                {"INSERT INTO mq_schema_version (version_id, is_applied) VALUES (99, TRUE)", false, ErrSchemaNewer, "99, and this program knows 1: deploy the release"},
		"none applied":         {"DELETE FROM mq_schema_version WHERE version_id > 0", false, ErrSchemaMissing, "mysql.Migrate"},
		"a table missing":      {"DROP TABLE queue_offsets", false, ErrSchemaMissing, "queue_offsets"},
		"engine":               {"DROP TABLE queue_offsets; CREATE TABLE queue_offsets (tenant INT) ENGINE = MyISAM", false, ErrServerSettings, "ALTER TABLE queue_offsets ENGINE = InnoDB"},
		"external":             {"DROP TABLE mq_schema_version", true, nil, ""},
		"external, missing":    {"", true, ErrSchemaMissing, "mysql.Schema"},
		"external, no version": {"DROP TABLE mq_schema_version", false, ErrSchemaMissing, "mysql.Migrate"},
		"external, column":     {"ALTER TABLE queue_partition_leases DROP COLUMN suspect_offset", true, ErrSchemaOlder, "suspect_offset"},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, testdb.DSN(t))
			if c.change != "" {
				if err := Migrate(t.Context(), db); err != nil {
					t.Fatal(err)
				}
				for change := range strings.SplitSeq(c.change, ";") {
					mustExec(t, db, change)
				}
			}
			q := newTestQueue(t, Params{DB: db, Config: Config{ExternalSchema: c.external}})
			_, publishErr := q.Publish(t.Context(), message("a", "t", "k", 1))
			for _, err := range []error{q.Verify(t.Context()), publishErr} {
				if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			}
		})
	}
}

// A queue whose database is put right afterwards need not be made anew.
func TestVerificationIsRepeatedUntilItSucceeds(t *testing.T) {
	db := openDB(t, testdb.DSN(t))
	q := newTestQueue(t, Params{DB: db})
	if _, err := q.Publish(t.Context(), message("a", "t", "k", 1)); !errors.Is(err, ErrSchemaMissing) {
		t.Fatalf("got %v", err)
	}
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, q, message("a", "t", "k", 1))
}

func TestVersionsAreReadAsServersWriteThem(t *testing.T) {
	for version, ok := range map[string]bool{
		"8.0.36": true, "8.4.6-Vitess": true, "9.1.0": true, "5.7.44-log": false,
		"10.11.6-MariaDB-0+deb12u1": true, "11.4.2-MariaDB": true, "5.5.5-10.6.1-MariaDB": true, "10.5.9-MariaDB": false, "10.3.1-MariaDB-log": false,
		"unknown": true, "": true, "a.b.c": true,
	} {
		if err := (settings{"version": version}).checkVersion(); (err == nil) != ok {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// The name of the isolation variable differs between servers.
func TestIsolationIsReadOnEveryServer(t *testing.T) {
	for _, c := range []struct {
		s  settings
		ok bool
	}{
		{settings{"transaction_isolation": "REPEATABLE-READ"}, true},
		{settings{"tx_isolation": "REPEATABLE-READ"}, true},
		{settings{"tx_isolation": "REPEATABLE-READ", "transaction_isolation": "READ-COMMITTED"}, false},
		{settings{"tx_isolation": "READ-COMMITTED"}, false},
		{settings{}, false},
	} {
		if err := c.s.checkIsolation(); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.s, err)
		}
	}
}

func TestVerifyEndsWithItsContextWhenThePoolIsHeld(t *testing.T) {
	db := migratedDB(t)
	db.SetMaxOpenConns(1)
	q := newTestQueue(t, Params{DB: db})
	begin(t, db)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 2)
	for range 2 { // the second waits for the first
		go func() {
			_, err := q.Publish(ctx, message("a", "t", "k", 1))
			done <- err
		}()
	}
	eventually(t, "a verification waits for a connection", func() bool { return db.Stats().WaitCount > 0 })
	cancel(fmt.Errorf("enough"))
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

// Tables that another tool has made are no sign of Vitess, nor is a name that
// would be one shard's there.
func TestExternalSchemaOnAnOrdinaryServer(t *testing.T) {
	cfg, err := mysql.ParseDSN(testdb.StartServer(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, openDB(t, cfg.FormatDSN()), "CREATE DATABASE `mq:-80`")
	cfg.DBName = "mq:-80"
	db := openDB(t, cfg.FormatDSN())
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	q := newTestQueue(t, Params{DB: db, Config: Config{ExternalSchema: true}})
	if err := q.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if q.vitess.Load() {
		t.Error("the server is taken for vtgate")
	}
}
