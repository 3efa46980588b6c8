package testdb_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// envHelper makes the test binary start a server, report it and wait to be killed.
const envHelper = "TESTDB_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
	}
	testdb.Main(m)
}

func TestDSNNamesAnEmptyDatabaseOfItsOwn(t *testing.T) {
	a, b := open(t, testdb.DSN(t)), open(t, testdb.DSN(t))
	execute(t, a, "CREATE TABLE things (id INT PRIMARY KEY)")
	execute(t, b, "CREATE TABLE things (id INT PRIMARY KEY)")
	execute(t, a, "INSERT INTO things VALUES (1)")
	if n := query[int](t, b, "SELECT COUNT(*) FROM things"); n != 0 {
		t.Errorf("a row of one database shows in the other: %d rows", n)
	}
}

func TestDSNDatabaseIsDroppedWithTheTest(t *testing.T) {
	server := open(t, testdb.ServerDSN(t))
	const count = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?"
	var name string
	t.Run("inner", func(t *testing.T) {
		cfg, err := mysql.ParseDSN(testdb.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		name = cfg.DBName
		if n := query[int](t, server, count, name); n != 1 {
			t.Fatalf("database %q is not there during its test", name)
		}
	})
	if n := query[int](t, server, count, name); n != 0 {
		t.Errorf("database %q is still there after its test", name)
	}
}

// Commits must reach the disk, or tests of a crash would prove nothing.
func TestStartServerDefaults(t *testing.T) {
	db := open(t, testdb.StartServer(t).DSN())
	for variable, want := range map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"max_allowed_packet":             "67108864",
		"bind_address":                   "127.0.0.1",
	} {
		if got := query[string](t, db, "SELECT @@GLOBAL."+variable); got != want {
			t.Errorf("%s = %s, want %s", variable, got, want)
		}
	}
}

func TestStartServerTakesSettings(t *testing.T) {
	s := testdb.StartServer(t, "transaction-isolation=READ-COMMITTED", "max-connections=17")
	db := open(t, s.Database(t))
	if got := query[string](t, db, "SELECT variable_value FROM information_schema.global_variables "+
		"WHERE variable_name IN ('tx_isolation', 'transaction_isolation')"); got != "READ-COMMITTED" {
		t.Errorf("isolation is %s", got)
	}
	if got := query[int](t, db, "SELECT @@max_connections"); got != 17 {
		t.Errorf("max_connections is %d", got)
	}
}

func TestStartReportsTheServersOwnWords(t *testing.T) {
	s, err := testdb.Start(t.Context(), "no-such-setting=1")
	if err == nil {
		t.Error("a server with a setting that it does not know has started", s.Stop())
	} else if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error does not say what was wrong: %v", err)
	}
}

func TestCommittedRowsSurviveKill(t *testing.T) {
	s := testdb.StartServer(t)
	db := open(t, s.Database(t))
	execute(t, db, "CREATE TABLE things (id INT PRIMARY KEY)")
	execute(t, db, "INSERT INTO things VALUES (1)")

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("a killed server answers")
	}
	for range 2 { // the second time over a server that runs
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		db := open(t, s.DSN())
		if got := query[int](t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'things'"); got != 1 {
			t.Fatal("the table is gone after a restart")
		}
	}
	if got := query[int](t, db, "SELECT id FROM things"); got != 1 {
		t.Errorf("id = %d", got)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := testdb.StartServer(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	refuses(t, s.DSN())
}

func TestServerEndsWithAProcessThatIsKilled(t *testing.T) {
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envHelper+"=1", "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dsn, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dsn = strings.TrimSpace(dsn)
	if err := open(t, dsn).PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed

	// The watchdog reports to nobody, so there is nothing to wait for but its work.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		left, err := os.ReadDir(tmp)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("left behind: %v", left)
		}
	}
	refuses(t, dsn)
}

func helper() {
	s, err := testdb.Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.DSN())
	select {}
}

// refuses fails t if anything listens where dsn points.
func refuses(t *testing.T, dsn string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial(cfg.Net, cfg.Addr)
		if err != nil {
			return
		}
		_ = conn.Close() // a killed process listens until the kernel has done with it
		if time.Now().After(end) {
			t.Fatal("the server still runs")
		}
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func query[T any](t *testing.T, db *sql.DB, statement string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), statement, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return v
}
