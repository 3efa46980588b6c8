package vitesstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A misrouted statement, or one whose lock is lost, is found wherever in the plan it is.
func TestRoutesAreJudged(t *testing.T) {
	const one, several = "SELECT 1 FROM t WHERE tenant = 'a'", "SELECT 1 FROM t WHERE tenant IN ('a', 'b')"
	join := func(variant, query string) string {
		return `{"OperatorType": "Join", "Inputs": [{"OperatorType": "Route", "Variant": "EqualUnique", "Query": "` + query + `"},
			{"OperatorType": "Limit", "Inputs": [{"OperatorType": "Route", "Variant": "` + variant + `", "Query": "` + query + `"}]}]}`
	}
	for _, c := range []struct{ text, plan, want string }{
		{one, join("EqualUnique", ""), ""},
		{one, join("IN", ""), "without a list of tenants"},
		{several, join("IN", ""), ""},
		{several, join("Scatter", ""), "its route is Scatter"},
		{one, join("", ""), "its route is none"},
		{one, `{"OperatorType": "Update", "Variant": "Scatter"}`, "its route is Scatter"},
		{one + " FOR UPDATE", join("EqualUnique", "select 1 from t for update"), ""},
		{one + " FOR UPDATE NOWAIT", join("EqualUnique", "select 1 from t"), "its lock is lost"},
		{one + " LOCK IN SHARE MODE", join("EqualUnique", "select 1 from t"), "its lock is lost"},
		{one, `{"OperatorType": "Rows"}`, "no route at all"},
	} {
		routes, err := routesIn(c.plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := misrouted(c.text, routes); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.text, c.plan, got, c.want)
		}
	}
}

func TestShapesHaveNoLength(t *testing.T) {
	var s Sent
	for _, text := range []string{
		"DELETE FROM t WHERE (a = ? AND b = ?)", "DELETE FROM t WHERE (a = ? AND b = ?) OR (a = ? AND b = ?)",
		"SELECT a FROM t WHERE b IN (?)", "SELECT a FROM t WHERE b IN (?, ?, ?)", "SELECT a FROM t WHERE b IN (?, ?)",
	} {
		s.add(text, nil)
	}
	if len(s.byShape) != 4 { // a list of one entry, and one of several
		t.Errorf("%d shapes: %+v", len(s.byShape), s.byShape)
	}
}

func TestStatementsAreConstants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "statements.go")
	text := "package p\n\nconst ofTenant = ` WHERE tenant = ?`\n\nconst (\n\tstmtOne = `SELECT 1 FROM t` + ofTenant\n\tstmtOneEnd = `)`\n\tstmtOther = `SELECT ` + elsewhere\n)\n\nvar list = rowList{}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"stmtOne": "SELECT 1 FROM t WHERE tenant = ?"}, Statements(t, path)); d != "" {
		t.Error(d)
	}
}
