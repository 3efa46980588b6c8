//go:build vitess

package mysql

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/backendtest"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// onVitess is the configuration for vtgate.
var onVitess = Config{ExternalSchema: true}

// vitessDSN names a cluster with empty tables.
func vitessDSN(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv(vitesstest.EnvDSN)
	if dsn == "" {
		t.Fatalf("%s names no cluster; make test-vitess starts one", vitesstest.EnvDSN)
	}
	emptyTables(t, openDB(t, dsn, ServerIsolation()))
	return dsn
}

func emptyTables(t testing.TB, db querier) {
	t.Helper()
	for _, table := range tableNames {
		mustExec(t, db, "TRUNCATE TABLE "+table)
	}
}

func TestVitessConformance(t *testing.T) {
	dsn := vitessDSN(t)
	heard := new(vitesstest.Sent)
	open := openHeard(heard)
	db, err := open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &storage{dsn: dsn, db: db, config: onVitess, wires: make(map[backendtest.Queue]*wire), open: open}
	t.Run("Suite", func(t *testing.T) {
		backendtest.Run(t, func(*testing.T) backendtest.Storage { return s })
	})
	t.Run("EveryStatementGoesToItsShards", func(t *testing.T) {
		sendTheRest(t, db)
		checkRoutes(t, heard, openDB(t, dsn, ServerIsolation()))
	})
	t.Run("TenantsAreOnEveryShard", func(t *testing.T) { checkSpread(t, dsn, db) })
}

// sendTheRest sends what takes a counter that lags behind, or more partitions
// than the suite has.
func sendTheRest(t *testing.T, db *sql.DB) {
	q := newTestQueue(t, Params{DB: db, Config: onVitess})
	first := mustPublish(t, q, message(tenantA, topicA, "k", 1))[0].Offset
	pass := func(watermark uint64) {
		mustExec(t, db, stmtSetMarks+markRow+stmtSetMarksEnd, string(tenantA), topicA, "k", groupA, watermark)
	}
	pass(first + 50)
	mustPublish(t, q, message(tenantA, topicA, "k", 2))
	pass(first + 100)
	if err := publishInTx(t.Context(), db, q, []backend.Message{message(tenantA, topicA, "k", 3)}); err != nil {
		t.Error(err)
	}

	queryInt(t, db, stmtTail, string(tenantA), topicA, "k")
	var offset, age int64
	oldest := newQuery(0, stmtOldest, groupA, string(tenantA), topicA, "k", 0, first, groupA)
	if err := oldest.each(t.Context(), db, []any{&offset, &age}, func() {}); err != nil {
		t.Error(err)
	}
}

// checkSpread looks at the registrations of groups, which the suite leaves.
func checkSpread(t *testing.T, dsn string, db *sql.DB) {
	shards, err := db.QueryContext(t.Context(), "SHOW VITESS_SHARDS")
	if err != nil {
		t.Fatal(err)
	}
	defer shards.Close()
	for shards.Next() {
		var shard string
		if err := shards.Scan(&shard); err != nil {
			t.Fatal(err)
		}
		cfg, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DBName = strings.Replace(shard, "/", ":", 1)
		direct, err := sql.Open("mysql", cfg.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		n := queryInt(t, direct, "SELECT COUNT(DISTINCT tenant) FROM queue_offsets")
		if err := direct.Close(); err != nil {
			t.Error(err)
		}
		if n < 10 {
			t.Errorf("shard %s has %d tenants: the suite proves nothing about it", shard, n)
		}
	}
	if err := shards.Err(); err != nil {
		t.Error(err)
	}
}
