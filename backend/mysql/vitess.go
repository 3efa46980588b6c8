package mysql

import (
	"encoding/json"
	"fmt"
)

// VSchema returns the routing of the tables for Vitess, as JSON for
// ApplyVSchema: every table is sharded by a hash of its tenant, so that all rows
// of a tenant are on one shard. The tables themselves are those of
// [VitessSchema].
//
// Offsets come from the AUTO_INCREMENT of each shard, not from a Vitess
// sequence: those hand out offsets outside the transaction that stores them, and
// in blocks, which breaks the order that publishing keeps.
func VSchema() string {
	type vindex struct {
		Type string `json:"type"`
	}
	type columnVindex struct {
		Column string `json:"column"`
		Name   string `json:"name"`
	}
	type table struct {
		ColumnVindexes []columnVindex `json:"column_vindexes"`
	}
	keyspace := struct {
		Sharded  bool              `json:"sharded"`
		Vindexes map[string]vindex `json:"vindexes"`
		Tables   map[string]table  `json:"tables"`
	}{true, map[string]vindex{vindexName: {vindexType}}, make(map[string]table)}
	for _, name := range tableNames {
		keyspace.Tables[name] = table{[]columnVindex{{"tenant", vindexName}}}
	}
	text, err := json.MarshalIndent(keyspace, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("the VSchema has no JSON: %v", err)) // strings and a truth value
	}
	return string(text) + "\n"
}

const (
	vindexName = "tenant_hash"
	vindexType = "xxhash"
)
