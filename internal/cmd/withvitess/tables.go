package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// addTables adds the tables of the service in dir to the keyspace, beside the queue's: those that its goose migrations
// make, routed as its vschema.json says. It names the queue's own vindex for them, so that a tenant's rows of both are on
// one shard, where one transaction reaches them.
//
// The version table of its migrations is left out: it has no shard to be on.
func addTables(cfg *vitesstest.Config, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "migrations", "*.sql")) // in order
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("tables %s: no migrations/*.sql in it", dir)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		_, up, found := strings.Cut(string(text), "-- +goose Up\n")
		if !found {
			return fmt.Errorf("tables %s: want a line -- +goose Up", name)
		}
		up, _, _ = strings.Cut(up, "-- +goose Down\n")
		cfg.Schema += "\n" + strings.TrimSpace(up) + "\n"
	}

	name := filepath.Join(dir, "vschema.json")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if cfg.VSchema, err = mergeVSchema(cfg.VSchema, text); err != nil {
		return fmt.Errorf("tables %s: %w", name, err)
	}
	return nil
}

// mergeVSchema adds the tables of one VSchema, which holds nothing else, to another.
func mergeVSchema(keyspace string, own []byte) (string, error) {
	type tables map[string]json.RawMessage
	var added struct {
		Tables tables `json:"tables"`
	}
	decoder := json.NewDecoder(bytes.NewReader(own))
	decoder.DisallowUnknownFields() // vindexes are the keyspace's
	if err := decoder.Decode(&added); err != nil {
		return "", err
	}
	if len(added.Tables) == 0 {
		return "", errors.New("want tables in it")
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal([]byte(keyspace), &whole); err != nil {
		return "", fmt.Errorf("the keyspace's VSchema: %w", err)
	}
	var all tables
	if err := json.Unmarshal(whole["tables"], &all); err != nil {
		return "", fmt.Errorf("the keyspace's VSchema: %w", err)
	}
	for name, table := range added.Tables {
		if _, taken := all[name]; taken {
			return "", fmt.Errorf("table %s: the keyspace has one of that name; choose another", name)
		}
		all[name] = table
	}
	var err error
	if whole["tables"], err = json.Marshal(all); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	return string(text) + "\n", err
}
