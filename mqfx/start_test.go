package mqfx_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// changed returns a DSN with something else about it.
func changed(t *testing.T, dsn string, change func(*driver.Config)) string {
	t.Helper()
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	return cfg.FormatDSN()
}

// migrated returns the DSN of a database with the queue's tables.
func migrated(t *testing.T) string {
	t.Helper()
	dsn := testdb.DSN(t)
	db := opened(t, dsn)
	if err := mysql.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// keepNone makes a handle close its connections after use, since the module
// leaves a handle it was given as it is.
func keepNone(db *sql.DB) {
	db.SetMaxIdleConns(-1)
	db.SetConnMaxLifetime(0)
}

func opened(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	keepNone(db)
	return db
}

// configured is an application as a service writes it, in a directory with the
// given config/base.yaml.
func configured(t *testing.T, yaml string) fx.Option {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("config", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mqfx.BaseFile, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(tenants.EnvVar, "acme")
	for _, name := range []string{mqfx.EnvConfig, mqfx.EnvDSN} {
		t.Setenv(name, "")
	}
	return mqfx.Module
}

func TestServiceRunsOnItsDatabase(t *testing.T) {
	app := configured(t, "mq: {backend: memory}\nhttp: {port: 80}")
	overlay := filepath.Join(t.TempDir(), "production.yaml")
	if err := os.WriteFile(overlay, []byte("mq: {backend: mysql, migrate: true, log: {level: error}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(mqfx.EnvConfig, overlay)
	dsn := testdb.DSN(t)
	t.Setenv(mqfx.EnvDSN, dsn)

	got := newCollector("land")
	var out publish.Publisher
	var cfg mqfx.Config
	start(t, app, mqfx.Handle(func() *collector { return got }), fx.Populate(&out, &cfg))
	mustPublish(t, out, "land", message("1"), message("2"))
	got.expect(t, "1", "2")
	if string(cfg.DSN) != dsn || cfg.Backend != mqfx.BackendMySQL {
		t.Errorf("the configuration in effect is %v", cfg)
	}
}

func TestBadInputRefusesTheStart(t *testing.T) {
	dsn := migrated(t)
	withPassword := changed(t, dsn, func(c *driver.Config) { c.User, c.Passwd = "nobody", "wr0ng-s3cret" })
	readCommitted, err := sql.Open("mysql", changed(t, dsn, func(c *driver.Config) {
		c.Params = map[string]string{"tx_isolation": "'READ-COMMITTED'", "sql_mode": "'STRICT_TRANS_TABLES'"}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer readCommitted.Close()
	keepNone(readCommitted)

	for name, tc := range map[string]struct {
		yaml string
		opts fx.Option
		want []string
	}{
		"misspelt root": {yaml: "mqq: {backend: memory}", want: []string{"config/base.yaml", "mq: section not found, only mqq", "put the queue's settings under mq"}},
		"null root":     {yaml: "mq: ~", want: []string{"config/base.yaml", "mq: has no value", "give it one"}},
		"unknown key": {
			yaml: "mq: {backend: memory, subscription: {pol_interval: 5s}}",
			want: []string{"config/base.yaml", "mq.subscription.pol_interval: unknown key", "did you mean poll_interval?"},
		},
		"zero duration": {
			yaml: "mq: {backend: memory, drain_timeout: 0s}",
			want: []string{"config/base.yaml", `mq.drain_timeout "0s"`, "must be above zero"},
		},
		"negative duration": {
			yaml: "mq: {backend: memory, subscription: {lease_duration: -1s}}",
			want: []string{"config/base.yaml", `mq.subscription.lease_duration "-1s"`, "must be above zero"},
		},
		"bare number": {
			yaml: "mq: {backend: memory, subscription: {poll_interval: 5}}",
			want: []string{"mq.subscription.poll_interval 5", `write a unit, as in "5s"`},
		},
		"unknown ordering": {
			yaml: "mq: {backend: memory, topics: {land: {ordering: sorted}}}",
			want: []string{`mq.topics.land.ordering "sorted"`, `want "strict" or "relaxed"`},
		},
		"duplicate handler": {
			yaml: "mq: {backend: memory}", opts: mqfx.Handle(newCollector("land"), newCollector("land")),
			want: []string{"*mqfx_test.collector and *mqfx_test.collector", `topic "land", group "collector"`, "give one another group or drop it"},
		},
		"no DSN": {yaml: "mq: {backend: mysql}", want: []string{"mq.dsn: must not be empty: set it, mq.dsn_file or MQ_DSN"}},
		"malformed DSN": {
			yaml: "mq: {dsn: 'mq:s3cret/mq'}",
			want: []string{"mq.dsn: cannot be read", "want user:password@tcp(host:port)/database"},
		},
		"DSN of replicas": {
			yaml: "mq: {dsn: 'mq:s3cret@tcp(127.0.0.1:1)/mq@replica'}",
			want: []string{"mq.dsn: cannot be read", "no @ in the database", "the keyspace alone"},
		},
		"DSN that breaks the queue": {
			yaml: "mq: {dsn: 'mq:s3cret@tcp(127.0.0.1:1)/mq?clientFoundRows=false'}",
			want: []string{`mq.dsn parameter clientFoundRows "false"`, "remove it"},
		},
		"unreachable database": {
			yaml: "mq: {dsn: 'mq:s3cret@tcp(127.0.0.1:1)/mq'}",
			want: []string{"mq.dsn mq@127.0.0.1:1/mq", "connection refused", "is the server up"},
		},
		"wrong password": {
			yaml: "mq: {dsn: '" + withPassword + "'}",
			want: []string{"mq.dsn nobody@", "Access denied", "MQ_DSN) name it and a user it knows?"},
		},
		"missing migration": {
			yaml: "mq: {dsn: '" + testdb.DSN(t) + "'}",
			want: []string{"mq.dsn ", "tables are missing", "call mysql.Migrate", "set mq.migrate to true"},
		},
		"handle on READ COMMITTED": {
			yaml: "mq: {}", opts: mqfx.WithDB(readCommitted),
			want: []string{"handle of mqfx.WithDB", "READ-COMMITTED", "REPEATABLE"},
		},
		"handle without tables": {
			yaml: "mq: {}", opts: mqfx.WithDB(opened(t, testdb.DSN(t))),
			want: []string{"handle of mqfx.WithDB", "tables are missing", "set mq.migrate to true"},
		},
		"two sources of configuration": {
			yaml: "mq: {}", opts: fx.Options(mqfx.WithConfig(mqfx.Config{}), mqfx.WithConfigFiles("x.yaml")),
			want: []string{"both mqfx.WithConfig and mqfx.WithConfigFiles"},
		},
		"missing file": {
			yaml: "mq: {}", opts: mqfx.WithConfigFiles("absent.yaml"),
			want: []string{"named by mqfx.WithConfigFiles: open absent.yaml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []fx.Option{configured(t, tc.yaml), mqfx.Handle(newCollector("build"))}
			if tc.opts != nil {
				opts = append(opts, tc.opts)
			}
			text := refused(t, opts...).Error()
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("error lacks %q: %s", want, text)
				}
			}
			if strings.Contains(text, "s3cret") {
				t.Errorf("error shows the password: %s", text)
			}
		})
	}
}

func TestMigrateAppliesPendingVersions(t *testing.T) {
	dsn := testdb.DSN(t)
	for _, migrate := range []bool{true, true, false} {
		app := fxtest.New(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn), Migrate: migrate, Log: quiet}))
		app.RequireStart().RequireStop()
	}
}

func TestExternalSchemaNeedsNoVersion(t *testing.T) {
	dsn := migrated(t)
	if _, err := opened(t, dsn).ExecContext(t.Context(), "DROP TABLE mq_schema_version"); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn)})); !strings.Contains(err.Error(), "tables are missing") {
		t.Errorf("error is %v", err)
	}
	start(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn), ExternalSchema: true, Log: quiet}))
}

func TestServerIsolationIsCheckedAndNotSet(t *testing.T) {
	server := testdb.StartServer(t, "transaction-isolation=READ-COMMITTED")
	cfg := mqfx.Config{DSN: mqfx.DSN(server.Database(t)), Migrate: true, Log: quiet}
	fxtest.New(t, mqfx.Module, mqfx.WithConfig(cfg)).RequireStart().RequireStop()
	cfg.ServerIsolation = true
	if err := refused(t, mqfx.Module, mqfx.WithConfig(cfg)); !strings.Contains(err.Error(), "READ-COMMITTED") {
		t.Errorf("error is %v", err)
	}
}

// A service that is run from another directory than its own has no
// configuration, and must say so.
func TestMissingConfigurationIsToldAtStart(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(mqfx.EnvConfig, "")
	t.Setenv(mqfx.EnvDSN, "")
	t.Setenv(tenants.EnvVar, "acme")
	told := "there is no config/base.yaml in " + dir
	if err := refused(t, mqfx.Module); !strings.Contains(err.Error(), told) {
		t.Errorf("without a DSN: %v", err)
	}
	t.Setenv(mqfx.EnvDSN, testdb.DSN(t))
	if err := refused(t, mqfx.Module); !strings.Contains(err.Error(), "mq.migrate") || !strings.Contains(err.Error(), told) {
		t.Errorf("without tables: %v", err)
	}
	if err := refused(t, mqfx.Module, mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(testdb.DSN(t))})); strings.Contains(err.Error(), told) {
		t.Errorf("configured in code: %v", err)
	}
}
