package mysql

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every table that Vitess gets is sharded by its tenant, and there is none
// without one.
func TestVSchemaCoversTheTables(t *testing.T) {
	var made []string
	for _, m := range regexp.MustCompile(`(?i)CREATE TABLE IF NOT EXISTS (\w+)`).FindAllStringSubmatch(VitessSchema(), -1) {
		made = append(made, m[1])
	}
	slices.Sort(made)
	if diff := cmp.Diff(tableNames, made); diff != "" {
		t.Errorf("the tables made (-want +got):\n%s", diff)
	}

	var v struct {
		Sharded  bool
		Vindexes map[string]struct{ Type string }
		Tables   map[string]struct {
			ColumnVindexes []struct{ Column, Name string } `json:"column_vindexes"`
		}
	}
	if err := json.Unmarshal([]byte(VSchema()), &v); err != nil {
		t.Fatal(err)
	}
	if !v.Sharded || len(v.Tables) != len(made) {
		t.Errorf("sharded: %v, %d tables of %d", v.Sharded, len(v.Tables), len(made))
	}
	for _, name := range made {
		by := v.Tables[name].ColumnVindexes
		if len(by) != 1 || by[0].Column != "tenant" || v.Vindexes[by[0].Name].Type != "xxhash" {
			t.Errorf("table %s is sharded by %+v", name, by)
		}
	}
}
