package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

func TestOpenRefusesWhatWouldBreakTheQueue(t *testing.T) {
	const server = "user:s3cret@tcp(db.example:3306)/mq"
	for dsn, want := range map[string]string{
		"":                                  "dsn",
		"user:s3cret@tcp(db.example:3306)":  "missing the slash",
		"user:s3cret@tcp(db.example:3306)/": "dsn user@db.example:3306/: names no database",
		"user:s3cret@tcp(db.example:3306)/?parseTime=true":   "names no database",
		"user:s3/cret@tcp(db.example:3306)":                  "cannot be read",
		"user:s3/cret?@tcp(db.example:3306)":                 "cannot be read",
		"user:s3/cret":                                       "",
		"user:s3cret/mq":                                     "cannot be read",
		server + "?parseTime=false":                          `dsn parameter parseTime "false": the queue needs it on; remove it`,
		server + "?clientFoundRows=false":                    "clientFoundRows",
		server + "?interpolateParams=0":                      "interpolateParams",
		server + "?rejectReadOnly=false":                     "rejectReadOnly",
		server + "?autocommit=0":                             "autocommit",
		server + "?loc=Local":                                `loc "Local"`,
		server + "?loc=Europe%2FBerlin":                      `loc "Europe/Berlin"`,
		server + "?timeTruncate=1s":                          "timeTruncate",
		server + "?charset=latin1":                           "charset",
		server + "?collation=latin1_swedish_ci":              "collation",
		server + "?tx_isolation=%27READ-COMMITTED%27":        "tx_isolation",
		server + "?transaction_isolation=%22SERIALIZABLE%22": "transaction_isolation",
		server + "?sql_mode=%27%27":                          "STRICT_TRANS_TABLES",
		server + "?strict=true":                              "strict",
		server + "?parseTime=maybe":                          "invalid bool value: maybe",
		server + "?tls=unknown":                              "unknown config name",
	} {
		_, err := Open(dsn)
		if _, ok := errors.AsType[*backend.FieldError](err); (!ok || !strings.Contains(err.Error(), want)) && want != "" {
			t.Errorf("%s: got %v, want %q", dsn, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "cret")) {
			t.Errorf("%s: the error shows the password: %v", dsn, err)
		}
	}
}

func TestOpenAcceptsCommonDSNs(t *testing.T) {
	for _, params := range []string{
		"", "?parseTime=true", "?charset=utf8mb4&parseTime=True&loc=UTC", "?multiStatements=true&timeout=3s",
		"?collation=utf8mb4_general_ci", "?transaction_isolation=%27REPEATABLE-READ%27", "?sql_mode=%27TRADITIONAL%27",
	} {
		db, err := Open("user:pass@tcp(db.example:3306)/mq" + params)
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if got := db.Stats().MaxOpenConnections; got != DefaultMaxOpenConns {
			t.Errorf("%s: %d connections at most", params, got)
		}
		_ = db.Close()
	}
}

// Every connection gets its settings when it opens, whatever the server's
// defaults: nothing is left to the first statement.
func TestConnectionsOpenWithTheQueuesSettings(t *testing.T) {
	server := testdb.StartServer(t, "transaction-isolation=READ-COMMITTED", "character-set-server=latin1")
	db := openDB(t, server.Database(t))
	var conns []*sql.Conn
	for range 3 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		s, err := readSettings(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check(Config{}.withDefaults()); err != nil {
			t.Error(err)
		}
	}
	for _, conn := range conns {
		conn.Close()
	}

	// Unless the server is to decide.
	left := openDB(t, server.Database(t), ServerIsolation())
	s, err := readSettings(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.check(Config{}.withDefaults()); !errors.Is(err, ErrIsolation) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionErrorsNameTheServerWithoutThePassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()

	cfg, err := mysql.ParseDSN(testdb.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	wrong, missing := cfg.Clone(), cfg.Clone()
	wrong.Passwd = "s3cret"
	missing.DBName = "mq_missing"
	for name, c := range map[string]struct{ dsn, want string }{
		"unreachable":      {"user:s3cret@tcp(" + nobody + ")/mq", "connect to user@" + nobody + "/mq: dial tcp " + nobody},
		"wrong password":   {wrong.FormatDSN(), "connect to " + cfg.User + "@" + cfg.Addr + "/" + cfg.DBName + ": Error 1045"},
		"missing database": {missing.FormatDSN(), "mq_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t, Params{DB: openDB(t, c.dsn)})
			_, publishErr := q.Publish(t.Context(), message("a", "t", "k", 1))
			for _, err := range []error{q.Verify(t.Context()), publishErr} {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "verify the queue's database") {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), cfg.Passwd) {
					t.Errorf("the error shows the password: %v", err)
				}
			}
		})
	}
}

func TestDriverSpeaksToTheLog(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	dsn := testdb.DSN(t)
	db := openDB(t, dsn, LogTo(zap.New(core)))
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id := queryInt(t, conn, "SELECT CONNECTION_ID()")
	mustExec(t, openDB(t, dsn), fmt.Sprintf("KILL CONNECTION %d", id))
	if _, err := conn.ExecContext(t.Context(), "DO 1"); classify(err) != classReconnect {
		t.Errorf("got %v", err)
	}
	if logged.FilterMessage("database connection").Len() == 0 {
		t.Error("nothing was logged")
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	// A server that accepts and says nothing.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept()
		cancel()
		if err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}
	}()
	q := newTestQueue(t, Params{DB: openDB(t, "u@tcp("+listener.Addr().String()+")/mq")})
	if err := q.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
