package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// Of the services' tables as of the queue's: each is routed by its first column, by the same hash.
func TestServicesTablesAreRoutedAsTheQueues(t *testing.T) {
	cfg := vitesstest.Config{Schema: mysql.VitessSchema(), VSchema: mysql.VSchema()}
	for _, dir := range []string{"submitqueue", "stovepipe"} {
		if err := addTables(&cfg, filepath.Join("..", "..", "..", "examples", dir)); err != nil {
			t.Fatal(err)
		}
	}
	routed := make(map[string]string) // leading column of the key, by table
	for _, m := range regexp.MustCompile(`(?s)CREATE TABLE (?:IF NOT EXISTS )?(\w+) .*?PRIMARY KEY \((\w+)`).FindAllStringSubmatch(cfg.Schema, -1) {
		routed[m[1]] = m[2]
	}
	for _, name := range []string{"queue_messages", "submit_requests", "submit_history", "stovepipe_heads"} {
		if routed[name] == "" {
			t.Errorf("no table %s is made", name)
		}
	}
	if strings.Contains(cfg.Schema, "DROP TABLE") {
		t.Error("tables are dropped again")
	}

	var v struct {
		Sharded  bool
		Vindexes map[string]struct{ Type string }
		Tables   map[string]struct {
			ColumnVindexes []struct{ Column, Name string } `json:"column_vindexes"`
		}
	}
	if err := json.Unmarshal([]byte(cfg.VSchema), &v); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for name, table := range v.Tables {
		for _, by := range table.ColumnVindexes {
			got[name] += by.Column
			if by.Name != "tenant_hash" {
				t.Errorf("table %s is routed by %s, the queue's by tenant_hash", name, by.Name)
			}
		}
	}
	if diff := cmp.Diff(routed, got); diff != "" || !v.Sharded || v.Vindexes["tenant_hash"].Type != "xxhash" {
		t.Errorf("sharded: %v by %v; columns (-want +got):\n%s", v.Sharded, v.Vindexes, diff)
	}
}

func TestTablesAreRefused(t *testing.T) {
	const up = "-- +goose Up\nCREATE TABLE t (queue INT PRIMARY KEY);\n"
	for want, files := range map[string][]string{
		"no migrations":           nil,
		"-- +goose Up":            {"CREATE TABLE t (queue INT PRIMARY KEY);\n", `{"tables": {"t": {}}}`},
		"vschema.json":            {up},
		"want tables":             {up, `{"tables": {}}`},
		`unknown field "sharded"`: {up, `{"sharded": false, "tables": {"t": {}}}`},
		"table queue_messages":    {up, `{"tables": {"queue_messages": {}}}`},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "migrations"), 0o700); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"migrations/1.sql", "vschema.json"} {
			if i < len(files) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		cfg := vitesstest.Config{Schema: mysql.VitessSchema(), VSchema: mysql.VSchema()}
		if err := addTables(&cfg, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
