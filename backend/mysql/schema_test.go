package mysql

import (
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// What the RFC asks of columns.
const (
	nameType   = "varchar(255) ascii ascii_bin NOT NULL"     // operational identifiers
	keyType    = "varchar(255) utf8mb4 utf8mb4_bin NOT NULL" // caller-chosen keys
	offsetType = "bigint(20) unsigned NOT NULL"              // offsets and epochs
	timeType   = "bigint(20) NOT NULL"                       // times
	countType  = "int(10) unsigned NOT NULL"
	flagType   = "tinyint(1) NOT NULL"
	errorType  = "text utf8mb4 utf8mb4_bin NULL"
)

// table is one of the RFC's tables, with what its text leaves to us.
type table struct {
	columns string   // "name type", in order
	indexes []string // "name unique (columns)", sorted
}

var rfcTables = map[string]table{
	"queue_messages": {
		columns: `tenant ` + nameType + `
topic ` + nameType + `
partition_key ` + keyType + `
offset ` + offsetType + ` auto_increment
id ` + keyType + `
payload mediumblob NOT NULL
metadata json NOT NULL
published_at ` + timeType + `
publish_id ` + offsetType + `
target_group ` + nameType + `
original_topic ` + nameType + `
original_id ` + keyType + `
original_offset ` + offsetType + `
failed_group ` + nameType + `
failed_at ` + timeType + `
failure_count ` + countType + `
last_error ` + errorType,
		indexes: []string{
			"PRIMARY unique (tenant, topic, partition_key, offset)",
			"idx_offset (offset, publish_id)",
			"uq_message unique (tenant, topic, partition_key, id)",
		},
	},
	"queue_delivery_state": {
		columns: `tenant ` + nameType + `
consumer_group ` + nameType + `
topic ` + nameType + `
partition_key ` + keyType + `
message_offset ` + offsetType + `
acked ` + flagType + `
postponed ` + flagType + `
attempts ` + countType + `
deliveries ` + countType + `
visible_at ` + timeType + `
last_error ` + errorType,
		indexes: []string{"PRIMARY unique (tenant, consumer_group, topic, partition_key, message_offset)"},
	},
	"queue_offsets": {
		columns: `tenant ` + nameType + `
topic ` + nameType + `
partition_key ` + keyType + `
consumer_group ` + nameType + `
offset_acked ` + offsetType + `
paused ` + flagType + `
updated_at ` + timeType,
		indexes: []string{"PRIMARY unique (tenant, topic, partition_key, consumer_group)"},
	},
	"queue_partition_leases": {
		columns: `tenant ` + nameType + `
consumer_group ` + nameType + `
topic ` + nameType + `
partition_key ` + keyType + `
leased_by ` + nameType + `
lease_epoch ` + offsetType + `
instance ` + offsetType + `
leased_at ` + timeType + `
lease_expires_at ` + timeType + `
claimed_offset ` + offsetType + `
suspect_offset ` + offsetType,
		indexes: []string{"PRIMARY unique (tenant, consumer_group, topic, partition_key)"},
	},
	"queue_subscriber_heartbeats": {
		columns: `tenant ` + nameType + `
consumer_group ` + nameType + `
topic ` + nameType + `
subscriber_name ` + nameType + `
started_at ` + timeType + `
heartbeat_at ` + timeType + `
expires_at ` + timeType,
		indexes: []string{"PRIMARY unique (tenant, consumer_group, topic, subscriber_name)"},
	},
}

func TestSchemaIsTheRFCs(t *testing.T) {
	db := migratedDB(t)
	found := readTables(t, db)
	if diff := cmp.Diff(rfcTables, found, cmp.AllowUnexported(table{})); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

// Those who apply the raw SQL with a tool of their own get the same.
func TestSchemaTextMakesTheSameTables(t *testing.T) {
	db := openDB(t, testdb.DSN(t))
	for statement := range strings.SplitSeq(Schema(), ";\n") {
		if strings.TrimSpace(statement) != "" {
			mustExec(t, db, statement)
		}
	}
	if diff := cmp.Diff(rfcTables, readTables(t, db), cmp.AllowUnexported(table{})); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	q := newTestQueue(t, Params{DB: db})
	if err := q.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if err := Migrate(t.Context(), db); err != nil { // goes on from there
		t.Error(err)
	}
}

// readTables describes every table of the database but the version table.
func readTables(t testing.TB, db *sql.DB) map[string]table {
	t.Helper()
	found := make(map[string]table)
	each(t, db, `SELECT c.table_name, c.column_name, c.column_type, COALESCE(c.character_set_name, ''), COALESCE(c.collation_name, ''), c.is_nullable, c.extra,
		COALESCE(t.engine, ''), COALESCE(t.table_collation, '')
		FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = DATABASE() AND c.table_name <> '`+versionTable+`' ORDER BY c.table_name, c.ordinal_position`, 9, func(v []string) {
		name, column, kind := v[0], v[1], v[2]
		if column == "metadata" && kind == "longtext" { // what MariaDB makes of JSON
			kind = "json"
		}
		words := []string{column, kind}
		if kind != "json" && v[3] != "" {
			words = append(words, v[3], v[4])
		}
		words = append(words, map[string]string{"NO": "NOT NULL", "YES": "NULL"}[v[5]])
		if v[6] != "" {
			words = append(words, v[6])
		}
		line := strings.Join(words, " ")
		// MySQL 8 no longer shows display widths.
		line = strings.NewReplacer(" bigint unsigned", " bigint(20) unsigned", " bigint NOT", " bigint(20) NOT", " int unsigned", " int(10) unsigned").Replace(line)
		tbl := found[name]
		if tbl.columns != "" {
			line = tbl.columns + "\n" + line
		}
		tbl.columns = line
		found[name] = tbl
		if v[7] != "InnoDB" || v[8] != "utf8mb4_bin" {
			t.Errorf("%s: engine %s, collation %s", name, v[7], v[8])
		}
	})
	each(t, db, `SELECT table_name, index_name, MIN(non_unique), GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', '),
		SUM(sub_part IS NOT NULL), SUM(collation <> 'A')
		FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name <> '`+versionTable+`'
		GROUP BY table_name, index_name ORDER BY table_name, index_name`, 6, func(v []string) {
		index := v[1]
		if v[2] == "0" {
			index += " unique"
		}
		tbl := found[v[0]]
		tbl.indexes = append(tbl.indexes, index+" ("+v[3]+")")
		slices.Sort(tbl.indexes)
		found[v[0]] = tbl
		if v[4] != "0" || v[5] != "0" {
			t.Errorf("%s: index %s has prefixes or descends", v[0], v[1])
		}
	})
	return found
}

func each(t testing.TB, db *sql.DB, query string, columns int, fn func([]string)) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	values := make([]string, columns)
	dest := make([]any, columns)
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		fn(values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateByManyProcessesAtOnce(t *testing.T) {
	dsn := testdb.DSN(t)
	var wait sync.WaitGroup
	for range 8 {
		db := openDB(t, dsn)
		db.SetMaxOpenConns(1) // one is enough
		wait.Go(func() {
			if err := Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	db := openDB(t, dsn)
	if n := queryInt(t, db, "SELECT COUNT(*) FROM mq_schema_version WHERE version_id = 1"); n != 1 {
		t.Errorf("version 1 recorded %d times", n)
	}
	if err := newTestQueue(t, Params{DB: db}).Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMigrateGoesOnAfterOneCutShort(t *testing.T) {
	db := migratedDB(t)
	// As if the process had died between two tables.
	mustExec(t, db, "DROP TABLE queue_subscriber_heartbeats")
	mustExec(t, db, "DELETE FROM mq_schema_version WHERE version_id = 1")
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rfcTables, readTables(t, db), cmp.AllowUnexported(table{})); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestStatusTellsWhatMigrateWouldDo(t *testing.T) {
	db := openDB(t, testdb.DSN(t))
	status, err := Status(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(SchemaStatus{Latest: SchemaVersion, Pending: []string{"00001_queue.sql"}}, status); diff != "" {
		t.Errorf("empty database (-want +got):\n%s", diff)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); n != 0 {
		t.Errorf("asking made %d tables", n)
	}
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if status, err = Status(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(SchemaStatus{Current: SchemaVersion, Latest: SchemaVersion}, status); diff != "" {
		t.Errorf("migrated database (-want +got):\n%s", diff)
	}
	mustExec(t, db, "INSERT INTO mq_schema_version (version_id, is_applied) VALUES (99, TRUE)")
	if err := Migrate(t.Context(), db); err == nil || !strings.Contains(err.Error(), "newer version, 99") {
		t.Errorf("got %v", err)
	}
}

// SchemaVersion is a constant for users to see; the files are what it is about.
func TestSchemaVersionIsThatOfTheFiles(t *testing.T) {
	names, err := migrationNames()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if version, err := goose.NumericComponent(name); err != nil || version != int64(i+1) {
			t.Errorf("%s: version %d, %v", name, version, err)
		}
	}
	if len(names) != SchemaVersion {
		t.Errorf("%d migrations, SchemaVersion is %d", len(names), SchemaVersion)
	}
}

// A migration waits for another one as long as its context lets it.
func TestMigrateWaitsForAnother(t *testing.T) {
	db := openDB(t, testdb.DSN(t))
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := (migrationLock{}).SessionLock(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Migrate(t.Context(), db) }()
	eventually(t, "the migration waits for the lock", func() bool {
		return queryInt(t, db, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()") > 0
	})
	if found := readTables(t, db); len(found) != 0 {
		t.Errorf("%d tables made without the lock", len(found))
	}
	if err := (migrationLock{}).SessionUnlock(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
