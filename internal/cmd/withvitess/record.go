package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// record is what the process that up leaves behind tells of its cluster.
type record struct {
	DSN    string
	Shards []string
	// Tables are the directories of those beside the queue's.
	Tables  []string
	Gate    string   // vtgate's status page
	Tablets []string // those of the tablets, as Shards
	Logs    string   // the directory
}

func recordOf(c *vitesstest.Cluster, tables []string) record {
	r := record{DSN: c.DSN(), Tables: tables, Gate: c.Status(), Logs: c.Dir()}
	for _, s := range c.Shards {
		r.Shards, r.Tablets = append(r.Shards, s.Name), append(r.Tablets, s.Status())
	}
	return r
}

func (r record) write(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func readRecord(file string) (r record, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// check returns an error unless the cluster is as it is asked for.
func (r record) check(shards int, tables []string) error {
	if len(r.Shards) == shards && slices.Equal(r.Tables, tables) {
		return nil
	}
	return fmt.Errorf("%s is up, and %s was asked for: make vitess-down first", describe(len(r.Shards), r.Tables), describe(shards, tables))
}

// describe says what a cluster has.
func describe(shards int, tables []string) string {
	unit := "shards"
	if shards == 1 {
		unit = "shard"
	}
	owners := []string{"the queue"}
	for _, dir := range tables {
		owners = append(owners, filepath.Base(dir))
	}
	return fmt.Sprintf("a cluster of %d %s with the tables of %s", shards, unit, strings.Join(owners, ", "))
}

// explain tells a person how to use the cluster.
func (r record) explain(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, `%s is up. A service's settings:

    mq: {external_schema: true, server_isolation: true}
    export MQ_DSN='%s'

status of vtgate  %s (counters: /debug/vars, /metrics)
`, describe(len(r.Shards), r.Tables), r.DSN, r.Gate)
	for i, shard := range r.Shards {
		fmt.Fprintf(&text, "of shard %-8s %s\n", shard, r.Tablets[i])
	}
	fmt.Fprintf(&text, "logs              %s/*.log\nstop it           make vitess-down\n\n", r.Logs)
	_, err := io.WriteString(w, text.String())
	return err
}
