//go:build vitess

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// sent keeps one example of every statement that went through its connections,
// whatever the length of its lists.
type sent struct {
	mu      sync.Mutex
	byShape map[string]example
}

type example struct {
	text string
	args []driver.NamedValue
}

// open is [Open] with an ear on the wire.
func (s *sent) open(dsn string) (*sql.DB, error) {
	cfg, err := openOptions{serverIsolation: true}.driverConfig(dsn)
	if err != nil {
		return nil, err
	}
	inner, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(&heardConnector{&connector{Connector: inner, target: target(cfg), database: cfg.DBName}, s})
	db.SetMaxOpenConns(DefaultMaxOpenConns)
	db.SetMaxIdleConns(DefaultMaxOpenConns)
	return db, nil
}

// repeated matches what follows the first entry of a list.
var repeated = regexp.MustCompile(`(, \?)+|(, \([^()]*(\([^()]*\)[^()]*)*\))+|( (OR|UNION ALL) \(.*\))`)

func (s *sent) add(text string, args []driver.NamedValue) {
	shape := repeated.ReplaceAllString(text, "…")
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byShape[shape]; !ok {
		s.byShape[shape] = example{text, slices.Clone(args)}
	}
}

type heardConnector struct {
	driver.Connector
	sent *sent
}

func (c *heardConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &heard{conn.(driverConn), c.sent}, nil
}

// driverConn is all that the driver's connections can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type heard struct {
	driverConn
	sent *sent
}

func (h *heard) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	h.sent.add(text, args)
	return h.driverConn.ExecContext(ctx, text, args)
}

func (h *heard) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	h.sent.add(text, args)
	return h.driverConn.QueryContext(ctx, text, args)
}

// neverSent are the statements that the suite has no use for, with the reason.
var neverSent = map[string]string{
	"stmtIsolation":       "vtgate over MariaDB refuses it: ServerIsolation",
	"stmtEngines":         "ExternalSchema",
	"stmtVersionTable":    "ExternalSchema",
	"stmtRecordVersion":   "ExternalSchema",
	"stmtSchemaVersion":   "ExternalSchema",
	"stmtLockMigration":   "ExternalSchema",
	"stmtUnlockMigration": "ExternalSchema",
}

// whereverItGoes reads no table.
var whereverItGoes = []string{"SHOW ", "SET ", "SAVEPOINT ", "ROLLBACK ", "RELEASE "}

// check asks vtgate for the plan of every statement. A list of tenants goes to
// those shards that own them, anything else to one.
func (s *sent) check(t *testing.T, db *sql.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shape, e := range s.byShape {
		if slices.ContainsFunc(whereverItGoes, func(p string) bool { return strings.HasPrefix(e.text, p) }) {
			continue
		}
		args := make([]any, len(e.args))
		for i, a := range e.args {
			args[i] = a.Value
		}
		if routes, err := routesOf(t.Context(), db, e.text, args); err != nil {
			t.Errorf("%s: %v", shape, err)
		} else if problem := misrouted(e.text, routes); problem != "" {
			t.Errorf("%s: %s", shape, problem)
		}
	}
	sent := slices.Collect(maps.Values(s.byShape))
	for name, text := range statements(t) {
		isSent := slices.ContainsFunc(sent, func(e example) bool { return strings.Contains(e.text, strings.TrimPrefix(text, "(")) })
		switch _, excused := neverSent[name]; {
		case !isSent && !excused:
			t.Errorf("%s was never sent: its route is unknown", name)
		case isSent && excused:
			t.Errorf("%s was sent, although it is said not to be", name)
		}
	}
}

// misrouted says what is wrong with the routes of a statement.
func misrouted(text string, routes []route) string {
	if len(routes) == 0 {
		return "no route at all"
	}
	for _, r := range routes {
		switch r.Variant {
		case "EqualUnique", "Sharded", "Reference":
		case "IN":
			if !strings.Contains(text, "tenant IN ") {
				return "it goes to several shards, without a list of tenants"
			}
		default:
			return "its route is " + r.Variant
		}
		if strings.HasSuffix(text, forUpdate) || strings.Contains(text, lockNowait) || strings.HasSuffix(text, lockInShare) {
			if query := strings.ToLower(r.Query); !strings.Contains(query, "for update") && !strings.Contains(query, "lock in share mode") {
				return "its lock is lost: " + r.Query
			}
		}
	}
	return ""
}

// route is an operator of a plan that reaches shards.
type route struct{ OperatorType, Variant, Query string }

func routesOf(ctx context.Context, db *sql.DB, text string, args []any) ([]route, error) {
	var plan string
	if err := db.QueryRowContext(ctx, "VEXPLAIN PLAN "+text, args...).Scan(&plan); err != nil {
		return nil, err
	}
	type operator struct {
		route
		Inputs []json.RawMessage
	}
	var routes []route
	left := []json.RawMessage{json.RawMessage(plan)}
	for len(left) > 0 {
		var o operator
		if err := json.Unmarshal(left[0], &o); err != nil {
			return nil, fmt.Errorf("plan %s: %w", plan, err)
		}
		left = append(left[1:], o.Inputs...)
		if slices.Contains([]string{"Route", "Insert", "Update", "Delete"}, o.OperatorType) {
			routes = append(routes, o.route)
		}
	}
	return routes, nil
}

// statements are the constants of statements.go that begin a statement.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "statements.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	// What other files declare is missing, and constants that need it are, too: those of the version table.
	cfg := types.Config{Error: func(error) {}}
	pkg, err := cfg.Check("mysql", files, []*ast.File{file}, nil)
	if pkg == nil {
		t.Fatal(errors.Join(errors.New("statements.go cannot be read"), err))
	}
	found := make(map[string]string)
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !strings.HasPrefix(name, "stmt") || strings.HasSuffix(name, "End") || c.Val().Kind() != constant.String {
			continue
		}
		found[name] = constant.StringVal(c.Val())
	}
	if len(found) < 50 {
		t.Fatalf("only %d statements found in statements.go", len(found))
	}
	return found
}
