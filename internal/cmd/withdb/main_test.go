package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// envRole makes the test binary play a part: withdb itself, or the command that it runs.
const envRole = "WITHDB_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "withdb":
		main()
	case "ping":
		if err := ping(os.Getenv(testdb.EnvDSN)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	default:
		testdb.Main(m)
	}
}

func ping(dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ping()
}

// withdb returns the command with a server named by dsn; none is started if it is not empty.
func withdb(t *testing.T, dsn string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), envRole+"=withdb", testdb.EnvDSN+"="+dsn)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestCommandFindsAServer(t *testing.T) {
	for _, args := range [][]string{
		{"--"},
		{"-set", "max-connections=20", "--"}, // a private server although one is named
	} {
		dsn := ""
		if len(args) > 1 {
			dsn = "nobody@tcp(127.0.0.1:1)/"
		}
		cmd := withdb(t, dsn, append(args, "env", envRole+"=ping", os.Args[0])...)
		if err := cmd.Run(); err != nil {
			t.Errorf("withdb %q: %v", args, err)
		}
	}
}

func TestServerOfEnvironmentIsUsed(t *testing.T) {
	const dsn = "someone@tcp(db.example:3306)/"
	out, err := withdb(t, dsn, "--", "sh", "-c", "echo $MQ_TEST_DSN").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != dsn {
		t.Errorf("the command found %q, want %q", got, dsn)
	}
}

func TestExitCodeIsTheCommands(t *testing.T) {
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"--", "sh", "-c", "exit 0"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", "kill -9 $$"}, 128 + 9},
		{[]string{"./no-such-command"}, exitNoCommand},
		{nil, 2},
	} {
		cmd := withdb(t, "unused@tcp(db.example:3306)/", test.args...)
		cmd.Stderr = nil // some complain, as they should
		_ = cmd.Run()    // the code says it all
		if got := cmd.ProcessState.ExitCode(); got != test.want {
			t.Errorf("withdb %q: exit code %d, want %d", test.args, got, test.want)
		}
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := withdb(t, "unused@tcp(db.example:3306)/", "sh", "-c",
			`trap 'exit 9' TERM INT; echo ready; while :; do sleep 0.05; done`)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the code says it all
		if got := cmd.ProcessState.ExitCode(); got != 9 {
			t.Errorf("%v: exit code %d, want that of the command's own handler", sig, got)
		}
	}
}
