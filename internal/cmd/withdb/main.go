// Command withdb runs a command with a database to test on.
//
//	withdb [-set name=value]... [--] command [argument]...
//
// The command finds the server's DSN in MQ_TEST_DSN. A server that MQ_TEST_DSN already names is used as it is; otherwise one
// is started for the command and removed after it (package testdb says how). Signals are passed on to the command, and its
// exit code is returned; 2 says that the command line was wrong and 125 that there was no database or no such command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

const exitNoCommand = 125

func main() {
	var settings []string
	flag.Func("set", "a server option `name=value`, for a private server even if "+testdb.EnvDSN+" is set; may be repeated",
		func(s string) error {
			settings = append(settings, s)
			return nil
		})
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: withdb [-set name=value]... [--] command [argument]...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := run(settings, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "withdb:", err)
	}
	os.Exit(code)
}

func run(settings, command []string) (code int, err error) {
	// Caught from the start: a signal during the start of the server must not leave it behind half made.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	if os.Getenv(testdb.EnvDSN) == "" || len(settings) > 0 {
		server, err := start(signals, settings)
		if err != nil {
			return exitNoCommand, err
		}
		defer func() {
			if e := server.Stop(); e != nil {
				code, err = max(code, 1), errors.Join(err, e)
			}
		}()
		if err := os.Setenv(testdb.EnvDSN, server.DSN()); err != nil {
			return exitNoCommand, err
		}
	}

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A process group of its own, so that an interrupt typed at the terminal reaches each of the command's processes
	// once: through here.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return exitNoCommand, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			// An error means that the command has ended just now, which the other case sees.
			_ = syscall.Kill(-cmd.Process.Pid, sig.(syscall.Signal))
		case err := <-done:
			return exitCode(err)
		}
	}
}

// start starts a server unless a signal comes first.
func start(signals <-chan os.Signal, settings []string) (*testdb.Server, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("stopped by signal: %v", sig))
		case <-ctx.Done():
		}
	}()
	server, err := testdb.Start(ctx, settings...)
	cause := context.Cause(ctx)
	cancel(nil)
	<-stopped
	if err == nil && cause != nil {
		return nil, errors.Join(cause, server.Stop())
	}
	return server, errors.Join(cause, err)
}

// exitCode follows the shell: a command ended by a signal counts as 128 and the signal's number.
func exitCode(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		if err != nil {
			return exitNoCommand, err
		}
		return 0, nil
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
