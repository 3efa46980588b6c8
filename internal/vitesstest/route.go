package vitesstest

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
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
)

// Sent keeps one example of every statement that went through its connections, whatever the length of its lists. The zero
// value has heard nothing. It is safe for concurrent use.
type Sent struct {
	mu      sync.Mutex
	byShape map[string]example
}

type example struct {
	text string
	args []driver.NamedValue
}

// Connector listens to the connections of another, which are those of go-sql-driver.
func (s *Sent) Connector(c driver.Connector) driver.Connector { return &heardConnector{c, s} }

// repeated matches what follows the first entry of a list.
var repeated = regexp.MustCompile(`(, \?)+|(, \([^()]*(\([^()]*\)[^()]*)*\))+|( (OR|UNION ALL) \(.*\))`)

func (s *Sent) add(text string, args []driver.NamedValue) {
	shape := repeated.ReplaceAllString(text, "…")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byShape == nil {
		s.byShape = make(map[string]example)
	}
	if _, ok := s.byShape[shape]; !ok {
		s.byShape[shape] = example{text, slices.Clone(args)}
	}
}

type heardConnector struct {
	driver.Connector
	sent *Sent
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
	sent *Sent
}

func (h *heard) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	h.sent.add(text, args)
	return h.driverConn.ExecContext(ctx, text, args)
}

func (h *heard) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	h.sent.add(text, args)
	return h.driverConn.QueryContext(ctx, text, args)
}

// Expected is what should have been sent, and where to.
type Expected struct {
	// Statements by name. One counts as sent if it is part of a statement that was.
	Statements map[string]string
	// Never has a reason for each name of those that are not sent.
	Never map[string]string
	// Anywhere are the beginnings of statements that read no sharded table.
	Anywhere []string
}

// Check asks vtgate for the plan of every statement sent, and fails a test unless a list of tenants goes to those shards
// that own them, anything else to one, and no lock is lost; and unless all statements expected were sent. The pool must not
// be one that is listened to.
func (s *Sent) Check(t testing.TB, db *sql.DB, want Expected) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for shape, e := range s.byShape {
		if slices.ContainsFunc(want.Anywhere, func(p string) bool { return strings.HasPrefix(e.text, p) }) {
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
	for name, text := range want.Statements {
		isSent := slices.ContainsFunc(sent, func(e example) bool { return strings.Contains(e.text, strings.TrimPrefix(text, "(")) })
		switch _, excused := want.Never[name]; {
		case !isSent && !excused:
			t.Errorf("%s was never sent: its route is unknown", name)
		case isSent && excused:
			t.Errorf("%s was sent, although it is said not to be", name)
		}
	}
	for name := range want.Never {
		if _, ok := want.Statements[name]; !ok {
			t.Errorf("%s is said never to be sent, and is no statement", name)
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
			return "its route is " + cmp.Or(r.Variant, "none")
		}
		if locks(text) && !locks(r.Query) {
			return "its lock is lost: " + r.Query
		}
	}
	return ""
}

func locks(text string) bool {
	text = strings.ToUpper(text)
	return strings.Contains(text, "FOR UPDATE") || strings.Contains(text, "LOCK IN SHARE MODE")
}

// route is an operator of a plan that reaches shards.
type route struct{ OperatorType, Variant, Query string }

func routesOf(ctx context.Context, db *sql.DB, text string, args []any) ([]route, error) {
	var plan string
	if err := db.QueryRowContext(ctx, "VEXPLAIN PLAN "+text, args...).Scan(&plan); err != nil {
		return nil, err
	}
	return routesIn(plan)
}

// routesIn finds the routes of a plan, wherever in the tree they are.
func routesIn(plan string) ([]route, error) {
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

// Statements are the constants of a Go file whose names begin with stmt, but not those that end one with End.
func Statements(t testing.TB, path string) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	// What other files declare is missing, and constants that need it are, too.
	cfg := types.Config{Error: func(error) {}}
	pkg, err := cfg.Check(file.Name.Name, files, []*ast.File{file}, nil)
	if pkg == nil {
		t.Fatalf("%s cannot be read: %v", path, err)
	}
	found := make(map[string]string)
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && strings.HasPrefix(name, "stmt") && !strings.HasSuffix(name, "End") && c.Val().Kind() == constant.String {
			found[name] = constant.StringVal(c.Val())
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no constants named stmt…", path)
	}
	return found
}
