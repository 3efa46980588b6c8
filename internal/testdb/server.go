package testdb

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

	"github.com/go-sql-driver/mysql"
)

// user is the account that a private server's DSN names; it may do everything.
const user = "mq"

// A Server is a private database server: a process, its directory, and a watchdog that ends both with this process.
// It is safe for concurrent use.
type Server struct {
	program  program
	dir      string
	port     int
	password string
	settings []string

	// The watchdog is a shell that waits for the end of its standard input. The kernel closes that when this process
	// ends, for whatever reason, so nothing has to be done in time.
	watchdog *exec.Cmd
	lifeline io.Closer

	mu      sync.Mutex
	process *process // nil while no server runs
}

// process is one run of the server.
type process struct {
	*exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
}

// Start starts a private server and returns once it answers. Each setting is a server option without its dashes, such as
// "transaction-isolation=READ-COMMITTED", and wins over the defaults. The caller must Stop it.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	program, err := findProgram(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tenantmq-db-")
	if err != nil {
		return nil, err
	}
	s := &Server{program: program, dir: dir, password: rand.Text(), settings: settings}
	if err := s.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.initialize(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// watch starts the watchdog. It has a process group of its own: an interrupt typed at the terminal must not end it before
// it has cleaned up.
func (s *Server) watch() error {
	const script = `cat >/dev/null
[ ! -s "$1/pid" ] || kill -9 "$(cat "$1/pid")"
rm -rf "$1"`
	s.watchdog = exec.Command("/bin/sh", "-c", script, "watchdog", s.dir)
	s.watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline, err := s.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	s.lifeline = lifeline
	if err := s.watchdog.Start(); err != nil {
		return fmt.Errorf("start the watchdog of a database server: %w", err)
	}
	return nil
}

// initialize makes the data directory and starts the server on a free port.
func (s *Server) initialize(ctx context.Context) error {
	if err := s.program.createDataDir(ctx, s.data()); err != nil {
		return err
	}
	// One statement a line, run before the server accepts connections. The server resolves no names, so the accounts
	// it comes with are for its socket, in a directory that only this user may enter.
	account := fmt.Sprintf("'%s'@'127.0.0.1'", user)
	init := fmt.Sprintf("CREATE USER IF NOT EXISTS %[1]s IDENTIFIED BY '%[2]s';\nGRANT ALL ON *.* TO %[1]s WITH GRANT OPTION;\n",
		account, s.password)
	if err := os.WriteFile(s.initFile(), []byte(init), 0o600); err != nil {
		return err
	}
	// A port that is free now may be taken before the server has it.
	var err error
	for range 5 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.Restart(ctx); err == nil || !strings.Contains(err.Error(), "already in use") {
			break
		}
	}
	return err
}

// DSN returns the server's DSN, without a database. It stays the same across restarts.
func (s *Server) DSN() string {
	return fmt.Sprintf("%s:%s@tcp(127.0.0.1:%d)/", user, s.password, s.port)
}

// Kill ends the server as a power failure would (kill -9) and returns once it is gone. Its data stays for [Server.Restart].
// Killing a server that does not run does nothing.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the database server: %w", err)
	}
	<-s.process.exited
	s.process = nil
	return os.RemoveAll(s.pidFile()) // before the number can belong to another process
}

// Restart starts the server again on the data and the port it had, killing it first if it still runs, and returns once it
// answers.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.kill(); err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program.server, s.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a database server: %w", err)
	}
	s.process = &process{Cmd: cmd, exited: make(chan struct{})}
	go func(p *process) {
		_ = p.Wait() // how it ended is in the log
		close(p.exited)
	}(s.process)
	if err := os.WriteFile(s.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return errors.Join(err, s.kill())
	}
	if err := s.awaitReady(ctx); err != nil {
		err = fmt.Errorf("start %s: %w\n%s", s.program.server, err, tail(log.Name()))
		return errors.Join(err, s.kill())
	}
	return nil
}

// Stop kills the server and removes its directory. It may be called more than once.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.kill()
	if s.watchdog.ProcessState == nil {
		err = errors.Join(err, s.lifeline.Close(), s.watchdog.Wait())
	}
	return err
}

func (s *Server) data() string     { return filepath.Join(s.dir, "data") }
func (s *Server) pidFile() string  { return filepath.Join(s.dir, "pid") }
func (s *Server) initFile() string { return filepath.Join(s.dir, "init.sql") }

func (s *Server) arguments() []string {
	args := s.program.arguments(s.data(),
		"bind-address=127.0.0.1",
		"port="+strconv.Itoa(s.port),
		"socket=mysql.sock", // in the data directory; an absolute path could exceed what a socket may have
		"skip-name-resolve",
		"init-file="+s.initFile(),
		"loose-mysqlx=OFF",
		"innodb-flush-log-at-trx-commit=1",
		"innodb-buffer-pool-size=256M",
		"max-connections=500",
		"max-allowed-packet=64M",
	)
	for _, setting := range s.settings {
		args = append(args, "--"+setting)
	}
	return args
}

// awaitReady waits until the server answers, has exited, or ctx ends.
func (s *Server) awaitReady(ctx context.Context) error {
	cfg, err := mysql.ParseDSN(s.DSN())
	if err != nil {
		return err
	}
	cfg.Logger = &mysql.NopLogger{} // the refusals until then are expected
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := execute(ctx, cfg, "DO 1"); err == nil {
			return nil
		}
		select {
		case <-s.process.exited:
			return fmt.Errorf("it ended at once: %s", s.process.ProcessState)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port for a database server: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// tail returns the last lines of a server's log.
func tail(file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}
