// Package testdb gives tests, and the commands that need a throwaway database, a real MySQL or MariaDB server.
//
// Where the server comes from, first match wins:
//
//  1. the environment variable MQ_TEST_DSN, a go-sql-driver DSN of a server on which databases may be created and dropped;
//  2. a mariadbd or mysqld found on PATH, started in a private directory on a free loopback port;
//  3. for root on a Debian system, the same after installing MariaDB's server without its service.
//
// A private server keeps the durability of production (every commit is flushed) and lives no longer than the process that
// started it, however that process ends.
//
// A package's tests use it by
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		db, err := sql.Open("mysql", testdb.DSN(t))
//
// and a test that needs a server of its own, differently configured or to be killed, by [StartServer].
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
)

// EnvDSN is the environment variable that names a server to use instead of a private one.
const EnvDSN = "MQ_TEST_DSN"

// How long a server, the installation of one included, may take to answer.
const startTimeout = 10 * time.Minute

// shared is the server of this test process. It is started by the first test that asks, so that a run of pure tests pays
// for none, and stopped by Main.
var shared struct {
	mu     sync.Mutex
	inMain bool
	server *Server
	err    error
}

// Main runs a package's tests, stops the server they used and exits with their code, or with 1 if they passed and left
// goroutines behind. It is all of a TestMain; opts tell goleak what to overlook.
func Main(m *testing.M, opts ...goleak.Option) {
	os.Exit(run(m, opts))
}

func run(m *testing.M, opts []goleak.Option) int {
	shared.mu.Lock()
	shared.inMain = true
	shared.mu.Unlock()

	code := m.Run()

	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "testdb:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	return code
}

// ServerDSN returns the DSN, without a database, of the server that the tests of this process share. It fails t if there is
// none to be had.
func ServerDSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv(EnvDSN); dsn != "" {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatalf("%s: %v", EnvDSN, err)
		}
		cfg.DBName = ""
		return cfg.FormatDSN()
	}

	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.inMain {
		t.Fatal("testdb: the package's TestMain must call testdb.Main, which stops the server")
	}
	if shared.server == nil && shared.err == nil {
		// Not t.Context: the server outlives the test that happens to ask first.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		shared.server, shared.err = Start(ctx)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.DSN()
}

// DSN creates an empty database on the shared server and returns its DSN. The database has a name of its own and is dropped
// when t ends, whatever connections still use it.
func DSN(t testing.TB) string {
	t.Helper()
	dsn := createDatabase(t, ServerDSN(t))
	t.Cleanup(func() {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		name := cfg.DBName
		cfg.DBName = ""
		if err := execute(context.Background(), cfg, "DROP DATABASE IF EXISTS `"+name+"`"); err != nil {
			t.Errorf("testdb: drop database %s: %v", name, err)
		}
	})
	return dsn
}

// StartServer starts a private server for t alone, never the one of MQ_TEST_DSN, and stops it when t ends. For settings see
// [Start].
func StartServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := Start(ctx, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Database creates an empty database with a name of its own and returns its DSN. It goes with the server.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return createDatabase(t, s.DSN())
}

func createDatabase(t testing.TB, serverDSN string) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(serverDSN)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	// The test's name is for whoever looks at a server while the tests run. An identifier has at most 64 characters.
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(t.Name()))
	name = "mq_" + name[:min(len(name), 34)] + "_" + strings.ToLower(rand.Text())
	if err := execute(t.Context(), cfg, "CREATE DATABASE `"+name+"`"); err != nil {
		t.Fatalf("testdb: create database %s: %v", name, err)
	}
	cfg.DBName = name
	return cfg.FormatDSN()
}

// execute runs one statement on a connection of its own.
func execute(ctx context.Context, cfg *mysql.Config, statement string) (err error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, statement)
	return err
}
