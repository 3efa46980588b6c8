package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/tenants"
)

// envRun makes the test binary mqctl itself: the tests run it as a process.
const envRun = "MQCTL_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(envRun) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testdb.Main(m)
}

// closedPort is a DSN where nothing listens: whoever connects fails.
const closedPort = "mq:secret@tcp(127.0.0.1:1)/queue?timeout=1s"

// Where the tests work unless they say otherwise.
const (
	acme    = tenants.ID("acme")
	globex  = tenants.ID("globex")
	orders  = "orders"
	dead    = "orders_dlq"
	billing = "billing"
)

// process prepares a run of mqctl in an empty directory.
func process(t testing.TB, dsn string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		envRun + "=1", "GORACE=atexit_sleep_ms=0", // else every process takes a second to end
		"MQ_DSN=" + dsn, "MQ_TENANTS=acme, globex", "PATH=" + os.Getenv("PATH"), "TZ=UTC", "HOME=" + cmd.Dir,
	}
	return cmd
}

// result is what a run left.
type result struct {
	testing.TB
	args           []string
	code           int
	stdout, stderr string
}

func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	return begin(t, cmd)()
}

// begin starts a process and returns what waits for its end.
func begin(t testing.TB, cmd *exec.Cmd) (wait func() result) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("mqctl %q: %v", cmd.Args[1:], err)
	}
	return func() result {
		t.Helper()
		err := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || !exit.Exited()) {
			t.Fatalf("mqctl %q: %v\n%s", cmd.Args[1:], err, &stderr)
		}
		return result{t, cmd.Args[1:], cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
}

// want checks the exit code, and that texts are shown on either stream.
func (r result) want(code int, texts ...string) result {
	r.Helper()
	if r.code != code {
		r.Fatalf("mqctl %q: exit code %d, want %d\nstdout: %s\nstderr: %s", r.args, r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout, text) && !strings.Contains(r.stderr, text) {
			r.Errorf("mqctl %q does not say %q\nstdout: %s\nstderr: %s", r.args, text, r.stdout, r.stderr)
		}
	}
	for _, stream := range []string{r.stdout, r.stderr} {
		if strings.ContainsAny(stream, "\x1b\x07\u009b\u202e\r") {
			r.Errorf("mqctl %q disturbs the terminal: %q", r.args, stream)
		}
	}
	return r
}

// decode reads the one document of a run, whose keys must all be known.
func decode[T any](r result) T {
	r.Helper()
	var doc T
	d := json.NewDecoder(strings.NewReader(r.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		r.Fatalf("mqctl %q: %v: %s", r.args, err, r.stdout)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		r.Fatalf("mqctl %q writes more than one document: %s", r.args, r.stdout)
	}
	return doc
}

// fixture is a queue on a database of its own, for mqctl to look at.
type fixture struct {
	testing.TB
	*mysql.Queue
	db     *sql.DB
	dsn    string
	config string // files; "" for what is set without
	ctx    context.Context
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{TB: t, dsn: testdb.DSN(t)}
	db, err := mysql.Open(f.dsn)
	f.check(err)
	t.Cleanup(func() { _ = db.Close() })
	f.db = db
	f.check(mysql.Migrate(t.Context(), db))
	set, err := tenants.New(acme, globex)
	f.check(err)
	f.Queue, err = mysql.NewQueue(mysql.Params{DB: db, Tenants: set})
	f.check(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = f.Close(ctx) // it may count deliveries that the test has left in flight
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	f.ctx = ctx
	return f
}

func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) equal(what string, want, got any) {
	f.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func (f *fixture) exec(statement string, args ...any) {
	f.Helper()
	_, err := f.db.ExecContext(f.ctx, statement, args...)
	f.check(err)
}

func (f *fixture) process(args ...string) *exec.Cmd {
	f.Helper()
	cmd := process(f, f.dsn, args...)
	cmd.Env = append(cmd.Env, mqfx.EnvConfig+"="+f.config)
	return cmd
}

func (f *fixture) run(args ...string) result {
	f.Helper()
	return finish(f, f.process(args...))
}

// feed is run with something on standard input.
func (f *fixture) feed(input string, args ...string) result {
	f.Helper()
	cmd := f.process(args...)
	cmd.Stdin = strings.NewReader(input)
	return finish(f, cmd)
}

func (f *fixture) publish(tenant tenants.ID, topic, key string, ids ...string) {
	f.Helper()
	for _, id := range ids {
		_, err := f.Publish(f.ctx, backend.Message{Tenant: tenant, Topic: topic, PartitionKey: key, ID: id, Payload: []byte("payload of " + id)})
		f.check(err)
	}
}

// subscribe starts a subscriber of orders, which ends with the test.
func (f *fixture) subscribe(change ...func(*backend.SubscriptionConfig)) backend.Subscription {
	f.Helper()
	cfg := backend.SubscriptionConfig{
		Group: billing, SubscriberName: "billing-1", PollInterval: 5 * time.Millisecond, LeaseDuration: time.Minute,
		Retry: backend.RetryPolicy{InitialBackoff: time.Minute, MaxBackoff: time.Minute},
	}
	for _, c := range change {
		c(&cfg)
	}
	sub, err := f.Subscribe(f.ctx, orders, cfg)
	f.check(err)
	f.Cleanup(func() { f.stop(sub) })
	return sub
}

// stop ends a subscription whatever is still out.
func (f *fixture) stop(sub backend.Subscription) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sub.Stop(ctx)
	for range sub.Deliveries() {
	}
}

func (f *fixture) next(sub backend.Subscription) backend.Delivery {
	f.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		if !ok {
			f.Fatal("the subscription has ended")
		}
		return d
	case <-f.ctx.Done():
		f.Fatal("waited for a delivery in vain")
	}
	return nil
}

// bury makes dead letters of messages of acme's orders, one partition each.
func (f *fixture) bury(ids ...string) {
	f.Helper()
	sub := f.subscribe()
	for _, id := range ids {
		f.publish(acme, orders, "key of "+id, id)
		f.check(f.next(sub).Reject(f.ctx, errors.New("no handler for "+id)))
	}
	f.stop(sub)
}

// stored counts the messages of acme's topic.
func (f *fixture) stored(topic string) (n int) {
	f.Helper()
	f.check(f.db.QueryRowContext(f.ctx, "SELECT COUNT(*) FROM queue_messages WHERE tenant = 'acme' AND topic = ?", topic).Scan(&n))
	return n
}
