package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresUser is the superuser of a private PostgreSQL and the name of the
// system account that runs it for root.
const postgresUser = "postgres"

// postgresSettings are PostgreSQL's defaults, which flush every commit, but for
// the memory, of which it gets as much as the test server of MySQL.
var postgresSettings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=", // over TCP, as MySQL is measured
	"shared_buffers=256MB",
	"max_connections=200",
}

// Postgres is a private PostgreSQL server: a process, its directory, and a
// watchdog that ends both with this process, even if this one is killed.
type Postgres struct {
	program  postgresProgram
	dir      string
	password string
	port     int

	server   *exec.Cmd
	exited   chan struct{} // closed once the server is gone and reaped
	watchdog *exec.Cmd
	lifeline io.Closer // the watchdog waits for its end, which the kernel sees to
	stop     sync.Once
	stopErr  error
}

// StartPostgres starts a server in a directory of its own on a free loopback
// port and returns once it answers. For root on Debian it installs PostgreSQL
// if there is none. The caller must Stop it.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	program, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tenantmq-pg-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{program: program, dir: dir, password: rand.Text()}
	if err := p.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// URL is where the server answers.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres?sslmode=disable", postgresUser, p.password, p.port)
}

// Stop ends the server and removes its directory. It may be called more than
// once.
func (p *Postgres) Stop() error {
	p.stop.Do(func() {
		p.stopErr = errors.Join(p.end(), p.lifeline.Close(), p.watchdog.Wait())
	})
	return p.stopErr
}

// end stops the server at once: what it holds goes with it.
func (p *Postgres) end() error {
	if p.server == nil {
		return nil
	}
	// SIGQUIT and not SIGKILL: the server takes its children along.
	if err := p.server.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	<-p.exited
	return os.RemoveAll(p.pidFile()) // before the number can belong to another process
}

// watch starts the watchdog. It gives the server 5 s to end in its own time: a
// process that nobody has reaped yet looks alive. It has a process group of its own: an interrupt
// typed at the terminal must not end it before it has cleaned up.
func (p *Postgres) watch() error {
	const script = `cat >/dev/null
if [ -s "$1/pid" ]; then
  pid=$(cat "$1/pid")
  kill -QUIT "$pid"
  n=0
  while [ $n -lt 50 ] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; n=$((n+1)); done
fi
rm -rf "$1"`
	p.watchdog = exec.Command("/bin/sh", "-c", script, "watchdog", p.dir)
	p.watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline, err := p.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	p.lifeline = lifeline
	if err := p.watchdog.Start(); err != nil {
		return fmt.Errorf("start the watchdog of PostgreSQL: %w", err)
	}
	return nil
}

func (p *Postgres) start(ctx context.Context) error {
	account, err := p.account()
	if err != nil {
		return err
	}
	secret := filepath.Join(p.dir, "password")
	if err := os.WriteFile(secret, []byte(p.password), 0o600); err != nil {
		return err
	}
	if account != nil {
		for _, path := range []string{p.dir, secret} {
			if err := os.Chown(path, int(account.Uid), int(account.Gid)); err != nil {
				return err
			}
		}
	}
	initdb := exec.CommandContext(ctx, p.program.initdb, "--pgdata="+p.data(), "--username="+postgresUser,
		"--auth=scram-sha-256", "--pwfile="+secret, "--encoding=UTF8", "--locale=C", "--no-sync")
	p.lower(initdb, account)
	out, err := initdb.CombinedOutput()
	if account != nil && errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("run %s as another user than root: %w; set TMPDIR to a directory that every user may enter", initdb.Path, err)
	}
	if err != nil {
		return fmt.Errorf("create a database directory with %s: %w\n%s", initdb.Path, err, out)
	}
	// A port that is free now may be taken before the server has it.
	for range 5 {
		if err = p.serve(ctx, account); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return err
}

func (p *Postgres) serve(ctx context.Context, account *syscall.Credential) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a free port for PostgreSQL: %w", err)
	}
	p.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	args := []string{"-D", p.data(), "-p", strconv.Itoa(p.port)}
	for _, setting := range postgresSettings {
		args = append(args, "-c", setting)
	}
	var log bytes.Buffer
	server := exec.Command(p.program.server, args...)
	server.Stdout, server.Stderr = &log, &log
	p.lower(server, account)
	if err := server.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	p.server, p.exited = server, make(chan struct{})
	go func(exited chan struct{}) {
		_ = server.Wait() // how it ended is in the log
		close(exited)
	}(p.exited)
	if err := os.WriteFile(p.pidFile(), []byte(strconv.Itoa(server.Process.Pid)), 0o600); err != nil {
		return err
	}
	if err := p.awaitReady(ctx); err != nil {
		if stopErr := p.end(); stopErr != nil { // the log is whole only after that
			return errors.Join(err, stopErr)
		}
		return fmt.Errorf("start %s: %w\n%s", p.program.server, err, log.Bytes())
	}
	return nil
}

// awaitReady waits until the server answers, has exited, or ctx ends.
func (p *Postgres) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := pgx.Connect(ctx, p.URL()); err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended at once: %s", p.server.ProcessState)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// lower makes cmd run as account, which may be nobody else's than ours, in a
// directory that it may enter, and apart from interrupts typed at the terminal.
func (p *Postgres) lower(cmd *exec.Cmd, account *syscall.Credential) {
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: account}
}

func (p *Postgres) data() string    { return filepath.Join(p.dir, "data") }
func (p *Postgres) pidFile() string { return filepath.Join(p.dir, "pid") }
