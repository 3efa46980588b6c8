package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
func lockFile() string { return filepath.Join(home(), "lock") }
func dsnFile() string  { return filepath.Join(home(), "dsn") }

// running returns the DSN of the cluster that up has started, or "".
func running() string {
	lock, err := os.OpenFile(lockFile(), os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return "" // whoever held it is gone
	}
	dsn, err := os.ReadFile(dsnFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(dsn))
}

func up(ctx context.Context, cfg vitesstest.Config) error {
	if dsn := running(); dsn != "" {
		fmt.Println(dsn)
		return nil
	}
	if err := down(ctx); err != nil { // what a killed one has left
		return err
	}
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
	server := exec.Command(program, "-shards", strconv.Itoa(cfg.Shards), "-programs", cfg.Programs, "serve")
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
	dsn, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = server.Wait() // the log says it
		text, _ := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("start a cluster: %s", text), down(context.WithoutCancel(ctx)))
	}
	fmt.Print(dsn)
	return server.Process.Release()
}

// serve keeps a cluster until it is told to end.
func serve(ctx context.Context, cfg vitesstest.Config) error {
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
	dsn := dsnFile()
	// Databases, too, are to be below home.
	if err := os.Setenv("TMPDIR", home()); err != nil {
		return err
	}
	cluster, err := vitesstest.Start(ctx, cfg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(dsn, []byte(cluster.DSN()+"\n"), 0o600); err != nil {
		return errors.Join(err, cluster.Stop())
	}
	if _, err := fmt.Println(cluster.DSN()); err != nil {
		return errors.Join(err, cluster.Stop())
	}
	<-ctx.Done()
	return cluster.Stop()
}

// down ends what up has started, and waits until the watchdogs have ended the rest.
func down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lock, err := os.OpenFile(lockFile(), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(home())
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			left, err := filepath.Glob(filepath.Join(home(), "tenantmq-*"))
			if err != nil || len(left) == 0 {
				return errors.Join(err, os.RemoveAll(home()))
			}
		} else if !told {
			if err := tell(syscall.SIGTERM); err != nil {
				return err
			}
			told = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stop the cluster in %s: %w", home(), ctx.Err())
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
