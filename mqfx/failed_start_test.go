package mqfx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

// One handler has taken a lease already when another's subscription runs out of
// the start's time.
func TestFailedStartLeavesNothingOnTheDatabase(t *testing.T) {
	dsn := migrated(t)
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start(t, mqfx.Module, mqfx.WithDB(db), mqfx.WithConfig(mqfx.Config{Log: quiet}), fx.Invoke(func(lc fx.Lifecycle, out publish.Publisher) {
		lc.Append(fx.StartHook(func(ctx context.Context) error {
			_, err := out.Publish(ctx, "acme", "a", message("1"))
			return err
		}))
	}))
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const (
		leases      = "SELECT COUNT(*) FROM queue_partition_leases WHERE lease_expires_at > 0"
		heartbeats  = "SELECT COUNT(*) FROM queue_subscriber_heartbeats"
		connections = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"
	)
	before := count(connections)
	leaks := goleak.IgnoreCurrent()

	app := fxtest.New(t, mqfx.Module, mqfx.WithTenants(set(t, "acme")), mqfx.WithConfig(mqfx.Config{DSN: mqfx.DSN(dsn), Log: quiet}),
		mqfx.Handle(newCollector("b"), consume.Func(consume.Subscription{Topic: "a", Group: "g"}, func(ctx context.Context, _ consume.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})),
		fx.Decorate(func(q backend.Queue) backend.Queue { return refusing{q, "b"} }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error)
	go func() { failed <- app.Start(ctx) }()
	// eventually waits: fx does not for a hook whose context has ended, and the
	// server takes note of a closed connection in its own time.
	eventually := func(query string, is func(int) bool) int {
		t.Helper()
		n := count(query)
		for end := time.Now().Add(patience); !is(n) && time.Now().Before(end); n = count(query) {
			time.Sleep(10 * time.Millisecond)
		}
		return n
	}
	if n := eventually(leases, func(n int) bool { return n > 0 }); n == 0 {
		t.Fatal("no lease was taken, nothing is tested")
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	for what, query := range map[string]string{"leases": leases, "heartbeats": heartbeats} {
		if n := eventually(query, func(n int) bool { return n == 0 }); n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
	if n := eventually(connections, func(n int) bool { return n <= before }); n > before {
		t.Errorf("%d connections are left of %d", n, before)
	}
	goleak.VerifyNone(t, leaks)
}
