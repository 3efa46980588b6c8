// Command withvitess runs a command with a Vitess cluster to test on, or keeps one running.
//
//	withvitess [-shards n] [-programs dir] [-tables dir]... run command [argument]...
//	withvitess [-shards n] [-programs dir] [-tables dir]... up
//	withvitess down
//
// The command of run finds vtgate's DSN in MQ_TEST_VITESS. A cluster that MQ_TEST_VITESS already names, or that up has
// started, is used as it is, whatever its shards; otherwise one is started for the command and removed after it. The
// command's exit code is returned.
//
// With -tables the keyspace also has the tables of a service that keeps its rows beside the queue's, and the cluster of run
// is always the command's own.
//
// up starts a cluster that stays until down, and prints its DSN, and on standard error how to use it; one that is up already
// is shown again if it is as asked for. down leaves nothing running and no files, also after the process that up has left was
// killed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/vitesstest"
)

const prefix = "withvitess: "

func main() {
	var cfg vitesstest.Config
	flag.IntVar(&cfg.Shards, "shards", 2, "the `number` of shards, a power of two up to 256")
	flag.StringVar(&cfg.Programs, "programs", filepath.Join("bin", "vitess"), "the `directory` of vtgate, vttablet and vtctldclient")
	var tables []string
	flag.Func("tables", "a `directory` with migrations/*.sql and vschema.json of tables to add to the keyspace; may be repeated",
		func(dir string) error {
			path, err := filepath.Abs(dir)
			tables = append(tables, path)
			return err
		})
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: withvitess [flags] run command [argument]... | up | down")
		flag.PrintDefaults()
	}
	flag.Parse()
	code, err := dispatch(cfg, tables, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, prefix+err.Error())
	}
	os.Exit(code)
}

func dispatch(cfg vitesstest.Config, tables, args []string) (code int, err error) {
	if cfg.Programs, err = filepath.Abs(cfg.Programs); err != nil {
		return 1, err
	}
	cfg.Schema, cfg.VSchema = mysql.VitessSchema(), mysql.VSchema()
	for _, dir := range tables {
		if err := addTables(&cfg, dir); err != nil {
			return 1, err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch {
	case len(args) > 1 && args[0] == "run":
		dsn := ""
		if len(tables) == 0 { // those that run have no others than the queue's
			dsn = cmp.Or(os.Getenv(vitesstest.EnvDSN), running().DSN)
		}
		if dsn == "" {
			fmt.Fprintf(os.Stderr, "starting %s\n", describe(cfg.Shards, tables))
		}
		return run(ctx, cfg, dsn, args[1:])
	case len(args) == 1 && args[0] == "up":
		return outcome(up(ctx, cfg, tables))
	case len(args) == 1 && args[0] == "serve": // what up leaves behind
		return outcome(serve(ctx, cfg, tables))
	case len(args) == 1 && args[0] == "down":
		found, err := down(ctx)
		switch {
		case err != nil:
			return 1, err
		case found:
			fmt.Println("stopped")
		default:
			fmt.Println("none is up under", os.TempDir())
		}
		return 0, nil
	}
	flag.Usage()
	return 2, nil
}

func outcome(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// run runs a command on the cluster that dsn names, or on one of its own.
func run(ctx context.Context, cfg vitesstest.Config, dsn string, command []string) (code int, err error) {
	if dsn == "" {
		cluster, err := vitesstest.Start(ctx, cfg)
		if err != nil {
			return 1, err
		}
		defer func() {
			if e := cluster.Stop(); e != nil {
				code, err = max(code, 1), errors.Join(err, e)
			}
		}()
		dsn = cluster.DSN()
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), vitesstest.EnvDSN+"="+dsn, vitesstest.EnvPrograms+"="+cfg.Programs)
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return outcome(err)
}
