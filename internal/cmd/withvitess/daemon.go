package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

// home is where the cluster of up lives, one for each user.
func home() string {
	return filepath.Join(os.TempDir(), "tenantmq-vitess-up-"+strconv.Itoa(os.Geteuid()))
}

// The process that up leaves behind holds a lock on lockFile as long as it lives and writes its number there. All that it
// starts is below home, and has watchdogs that clean up when it has gone without doing so.
func lockFile() string   { return filepath.Join(home(), "lock") }
func recordFile() string { return filepath.Join(home(), "cluster.json") }

// held tells whether what up leaves behind is there, be it still starting.
func held() bool {
	lock, err := os.OpenFile(lockFile(), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer lock.Close()
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// running returns the record of the cluster that up has started, without a DSN if there is none.
func running() record {
	if !held() {
		return record{}
	}
	r, err := readRecord(recordFile())
	if err != nil {
		return record{} // it is not up yet
	}
	return r
}

// up prints the DSN to standard output, and the rest to standard error.
func up(ctx context.Context, cfg vitesstest.Config, tables []string) error {
	if r := running(); r.DSN != "" {
		if err := r.check(cfg.Shards, tables); err != nil {
			return err
		}
		return show(r)
	}
	if held() {
		return errors.New("somebody else is starting a cluster: wait for it, or make vitess-down")
	}
	if _, err := down(ctx); err != nil { // what a killed one has left
		return err
	}
	fmt.Fprintf(os.Stderr, "starting %s\n", describe(cfg.Shards, tables))
	if err := os.Mkdir(home(), 0o711); err != nil { //nolint:gosec // Vitess runs as an ordinary user below it
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A copy, since go run removes what it has built.
	program := filepath.Join(home(), "withvitess")
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	if err := os.WriteFile(program, text, 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	log, err := os.Create(filepath.Join(home(), "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-shards", strconv.Itoa(cfg.Shards), "-programs", cfg.Programs}
	for _, dir := range tables {
		args = append(args, "-tables", dir)
	}
	server := exec.Command(program, append(args, "serve")...)
	server.Env = append(os.Environ(), "TMPDIR="+os.TempDir())
	server.Dir, server.Stderr = home(), log
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = server.Wait() // the log says it
		text, _ := os.ReadFile(log.Name())
		_, err := down(context.WithoutCancel(ctx))
		return errors.Join(fmt.Errorf("start a cluster: %s", bytes.TrimPrefix(text, []byte(prefix))), err)
	}
	r, err := readRecord(recordFile())
	if err != nil {
		return err
	}
	return errors.Join(show(r), server.Process.Release())
}

func show(r record) error {
	if err := r.explain(os.Stderr); err != nil {
		return err
	}
	_, err := fmt.Println(r.DSN)
	return err
}

// serve keeps a cluster until it is told to end. It prints a line once the cluster is up and recorded.
func serve(ctx context.Context, cfg vitesstest.Config, tables []string) error {
	lock, err := os.OpenFile(lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := lock.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	file := recordFile()
	// Databases, too, are to be below home.
	if err := os.Setenv("TMPDIR", home()); err != nil {
		return err
	}
	cluster, err := vitesstest.Start(ctx, cfg)
	if err != nil {
		return err
	}
	if err := recordOf(cluster, tables).write(file); err != nil {
		return errors.Join(err, cluster.Stop())
	}
	if _, err := fmt.Println("up"); err != nil {
		return errors.Join(err, cluster.Stop())
	}
	<-ctx.Done()
	return cluster.Stop()
}

// down ends what up has started, waits until the watchdogs have ended the rest, and tells whether there was anything.
func down(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lock, err := os.OpenFile(lockFile(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, os.RemoveAll(home())
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			left, err := filepath.Glob(filepath.Join(home(), "tenantmq-*"))
			if err != nil || len(left) == 0 {
				return true, errors.Join(err, os.RemoveAll(home()))
			}
		} else if !told {
			if err := tell(syscall.SIGTERM); err != nil {
				return true, err
			}
			told = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true, fmt.Errorf("stop the cluster in %s: %w", home(), ctx.Err())
		}
	}
}

// tell signals the process that holds the lock.
func tell(sig syscall.Signal) error {
	text, err := os.ReadFile(lockFile())
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", lockFile(), err)
	}
	return syscall.Kill(pid, sig)
}
