// Command demo shows a day of landings: it makes a git repository and a
// database, starts the three services as processes, lands changes through them
// over HTTP while processes are killed, and accounts for every one.
//
//	make demo
//	make demo REPLAY=landings.ndjson
//	make demo VITESS=1 SHARDS=4
//
// It needs git and MQ_TEST_DSN, a server on which a database may be created. With
// -vitess it needs MQ_TEST_VITESS instead, a cluster whose sharded keyspace has
// the queue's tables and those of submitqueue and stovepipe.
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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/examples/internal/git"
)

// leaseDuration is how long the partitions of a killed process wait for another.
const leaseDuration = 3 * time.Second

var started = time.Now()

func say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	replay := flag.String("replay", "", "take the traffic from `file`, one landing a line: {\"queue\", \"change\", \"at\", \"area\", \"files\"}")
	within := flag.Duration("within", 20*time.Second, "compress a replay's traffic to `duration`")
	limit := flag.Duration("limit", 5*time.Minute, "give up after `duration`")
	vitess := flag.Bool("vitess", false, "run on the Vitess cluster of MQ_TEST_VITESS, and show which shard holds which tenant")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *replay, *within, *limit, *vitess); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, replay string, within, limit time.Duration, vitess bool) (err error) {
	plan := builtinPlan()
	if replay != "" {
		if plan, err = readPlan(replay, within); err != nil {
			return err
		}
	}
	interrupt := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	dir, err := os.MkdirTemp("", "tenantmq-demo-")
	if err != nil {
		return err
	}
	// Told, not found out: a service, too, has to be told.
	open := newDatabase
	if vitess {
		open = vitessKeyspace
	}
	db, err := open(ctx)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	fleet, err := prepare(ctx, dir, db, plan, fail)
	defer func() {
		err = errors.Join(err, fleet.stop(), db.remove())
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nthe logs are in %s", err, dir)
		}
	}()
	if err != nil {
		return err
	}
	if err := show(ctx, fleet, db, plan); err != nil {
		if interrupt.Err() != nil {
			return context.Cause(interrupt)
		}
		// A service that failed explains more, and so do the rows that are stuck.
		return errors.Join(cmp.Or(context.Cause(ctx), err), drained(context.WithoutCancel(ctx), db, plan.Queues, everyTable()...))
	}
	return nil
}

// prepare makes the repository, builds the services and starts them.
func prepare(ctx context.Context, dir string, db *database, plan Plan, fail context.CancelCauseFunc) (*fleet, error) {
	f := &fleet{dir: dir, fail: fail, env: []string{"MQ_DSN=" + db.dsn(), "MQ_TENANTS=" + plan.tenants()}, crash: "by whom nobody knows"}
	if c, ok := plan.first(Crashes); ok {
		f.crash = fmt.Sprintf("by the check of %s/%s, which crashes it once", c.Queue, c.Name)
	}
	if err := git.Create(ctx, repository(dir), plan.commits()); err != nil {
		return f, err
	}
	say("made a repository with %d changes for %s", len(plan.Changes), strings.Join(plan.Queues, ", "))

	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return f, fmt.Errorf("find the module's folder; run the demo inside it: %w", err)
	}
	f.root = strings.TrimSpace(string(root))
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "bin")+"/", "./examples/runway", "./examples/submitqueue", "./examples/stovepipe")
	build.Dir = f.root
	if out, err := build.CombinedOutput(); err != nil {
		return f, fmt.Errorf("build the services: %w\n%s", err, out)
	}
	addresses, err := freeAddresses(4)
	if err != nil {
		return f, err
	}
	for i, s := range []struct{ name, program, section string }{
		{"submitqueue-1", "submitqueue", "check: '" + checkCommand(dir, plan) + "'"},
		{"submitqueue-2", "submitqueue", "check: '" + checkCommand(dir, plan) + "'"},
		{"runway", "runway", fmt.Sprintf("repository: %q\n  target: %q\n  change: %q", repository(dir), targetRef, changeRef)},
		{"stovepipe", "stovepipe", fmt.Sprintf("repository: %q\n  target: %q", repository(dir), targetRef)},
	} {
		overlay := fmt.Sprintf("mq:\n  backend: mysql\n  %s\n  subscription:\n    lease_duration: %v\n%s:\n  address: %s\n  %s\n",
			db.settings, leaseDuration, s.program, addresses[i], s.section)
		service, err := f.add(s.name, s.program, addresses[i], overlay)
		if err != nil {
			return f, err
		}
		if err := service.healthy(ctx); err != nil {
			return f, err
		}
	}
	say("built and started two submitqueues, runway and stovepipe on %s", db.what)
	return f, nil
}

func repository(dir string) string { return filepath.Join(dir, "landing.git") }

// checkCommand fails for a change with a file BROKEN, and kills the process that
// runs it once for one that crashes. A plan without such changes has a check that
// only takes its time as a process.
func checkCommand(dir string, plan Plan) string {
	var lines []string
	if c, ok := plan.first(Crashes); ok {
		lines = append(lines, fmt.Sprintf(`if [ "$QUEUE/$CHANGE" = %s/%s ] && mkdir "%s" 2>/dev/null; then kill -9 $PPID; fi`,
			c.Queue, c.Name, filepath.Join(dir, "crashed")))
	}
	if _, ok := plan.first(Broken); ok {
		lines = append(lines, fmt.Sprintf(`if git --git-dir="%s" cat-file -e "%s:BROKEN" 2>/dev/null; then echo "it is BROKEN"; exit 1; fi`,
			repository(dir), ref(changeRef, "$QUEUE", "$CHANGE")))
	}
	return strings.Join(append(lines, "true"), "; ")
}

// show lands everything while processes are killed, and accounts for it.
func show(ctx context.Context, f *fleet, db *database, plan Plan) error {
	submitqueue := &client{addresses: []string{f.services[0].address, f.services[1].address}}
	stovepipe := &client{addresses: []string{f.services[3].address}}
	victim := f.services[1]

	traffic, trafficCtx := errgroup.WithContext(ctx)
	traffic.Go(func() error {
		return land(trafficCtx, submitqueue, plan, func(n int) error {
			if n != (len(plan.Changes)+1)/2 {
				return nil
			}
			for f.killed() < plan.kills()-1 { // so that each kill hits a process of its own
				if err := pause(trafficCtx, 10*time.Millisecond); err != nil {
					return fmt.Errorf("wait for the crash: %w", err)
				}
			}
			say("half of the changes are accepted: killing %s with SIGKILL", victim.name)
			return victim.kill(trafficCtx)
		})
	})
	traffic.Go(func() error { return watch(trafficCtx, submitqueue, stovepipe, plan, repository(f.dir)) })
	if err := traffic.Wait(); err != nil {
		return err
	}
	if err := validate(ctx, stovepipe, plan); err != nil {
		return err
	}
	if err := waitDrained(ctx, db, plan.Queues); err != nil {
		return err
	}
	list, err := accounts(ctx, submitqueue, plan)
	if err != nil {
		return err
	}
	killed := f.killed()
	stopErr := f.stop()
	if stopErr == nil {
		say("every service has stopped gracefully, with exit code 0")
	}
	printTable(list)
	errs := []error{showShards(ctx, db, list, plan), stopErr, balance(list, plan), prove(ctx, repository(f.dir), list)}
	if want := plan.kills(); killed != want {
		errs = append(errs, fmt.Errorf("%d processes were killed, want %d", killed, want))
	}
	if err := errors.Join(append(errs, drained(ctx, db, plan.Queues, everyTable()...))...); err != nil {
		return err
	}
	say("every message is accounted for: no queue_* table holds a row of a drained partition, after %d processes were killed", killed)
	return nil
}
