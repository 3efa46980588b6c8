//go:build vitess

package mysql

import (
	"errors"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
)

// Each mistake ends in what to do about it, whoever shows the error.
func TestVitessVerifyNamesTheRemedy(t *testing.T) {
	dsn := vitessDSN(t)
	at := func(target string) string {
		cfg, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DBName = target
		return cfg.FormatDSN()
	}
	var shard string // the first, as keyspace/shard
	if err := openDB(t, dsn, ServerIsolation()).QueryRowContext(t.Context(), "SHOW VITESS_SHARDS").Scan(&shard); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		dsn     string
		config  Config
		isolate bool
		want    string // "" is accepted
	}{
		"as documented":        {dsn: dsn, config: onVitess},
		"no external schema":   {dsn: dsn, want: "mq.external_schema"},
		"no server isolation":  {dsn: dsn, config: onVitess, isolate: true, want: "mq.server_isolation"},
		"neither":              {dsn: dsn, isolate: true, want: "mq.external_schema, and over MariaDB mq.server_isolation"},
		"one shard":            {dsn: at(strings.Replace(shard, "/", ":", 1)), config: onVitess, want: `name the keyspace, "mq"`},
		"one shard by a slash": {dsn: at(shard), config: onVitess, want: `name the keyspace, "mq"`},
		"unknown keyspace":     {dsn: at("nokeyspace"), config: onVitess, want: "the DSN's database is the keyspace"},
	} {
		t.Run(name, func(t *testing.T) {
			options := []OpenOption{ServerIsolation()}
			if tc.isolate {
				options = nil
			}
			db := openDB(t, tc.dsn, options...)
			err := newTestQueue(t, Params{DB: db, Config: tc.config}).Verify(t.Context())
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if _, ok := errors.AsType[*VitessError](err); !ok || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "CREATE DATABASE") {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if tc.config.ExternalSchema {
				return
			}
			if _, ok := errors.AsType[*VitessError](Migrate(t.Context(), db)); !ok {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// vtgate answers for a table that its VSchema lacks with another error than a
// server.
func TestVitessTableWithoutRoutingIsMissing(t *testing.T) {
	db := openDB(t, vitessDSN(t), ServerIsolation())
	defer func(probes []string) { stmtProbes = probes }(stmtProbes)
	stmtProbes = append(slices.Clip(stmtProbes), "SELECT topic FROM queue_unrouted WHERE tenant = '' LIMIT 1")
	if err := newTestQueue(t, Params{DB: db, Config: onVitess}).Verify(t.Context()); !errors.Is(err, ErrSchemaMissing) {
		t.Errorf("%v, want %v", err, ErrSchemaMissing)
	}
}
