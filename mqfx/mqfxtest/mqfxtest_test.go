package mqfxtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/mqfx/mqfxtest"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is what handlers under test write to.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		t.Errorf("journal is %q, want %q", j.lines, want)
	}
}

// on makes a handler of group g that journals every attempt and then does what
// do says.
func on(topic string, j *journal, do func(context.Context, consume.Delivery) error) consume.Handler {
	return consume.Func(consume.Subscription{Topic: topic, Group: "g"}, func(ctx context.Context, d consume.Delivery) error {
		j.add(topic + " " + d.ID)
		return do(ctx, d)
	})
}

func done(context.Context, consume.Delivery) error { return nil }

func message(id string) publish.Message { return publish.Message{ID: id, PartitionKey: "key"} }

func TestWaitSettledFollowsMessages(t *testing.T) {
	var j journal
	app := mqfxtest.New(t, mqfx.Handle(
		func(out publish.Publisher) consume.Handler {
			return on("first", &j, func(ctx context.Context, d consume.Delivery) error {
				_, err := out.Publish(ctx, d.Tenant, "second", message(d.ID))
				return err
			})
		},
		func(out publish.Publisher) consume.Handler {
			return on("second", &j, func(ctx context.Context, d consume.Delivery) error {
				_, err := out.Publish(ctx, d.Tenant, "nobody's", message(d.ID))
				return err
			})
		},
	))
	app.WaitSettled(0)
	app.Publish(mqfxtest.Tenant, "first", message("1"))
	app.WaitSettled(time.Minute)
	j.expect(t, "first 1", "second 1")
	app.Publish(mqfxtest.Tenant, "nobody's", message("2"))
	app.WaitSettled(time.Minute)
}

// failing is the test of a test: it keeps Fatalf from failing the real one.
type failing struct {
	testing.TB
	says []string
}

func (f *failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic(f) }

func (f *failing) Errorf(format string, args ...any) {
	f.says = append(f.says, fmt.Sprintf(format, args...))
}

func TestWaitSettledFailsTheTestInTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"postponed": {consume.Postpone(time.Hour), `tenant "test", topic "land", partition key "key", id "1", group "g": 0 attempts failed; postponed for another 59m0s`},
		"failing":   {errors.New("no such branch"), `id "1", group "g": 7 attempts failed, the last: no such branch`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &failing{TB: t}
				app := mqfxtest.New(f, mqfx.WithConfig(mqfx.Config{Subscription: mqfx.Subscription{Retry: mqfx.Retry{MaxAttempts: 8, InitialBackoff: time.Millisecond}}}),
					mqfx.Handle(consume.Func(consume.Subscription{Topic: "land", Group: "g"}, func(_ context.Context, d consume.Delivery) error {
						if d.Attempt == 8 {
							return consume.Postpone(time.Hour)
						}
						return tc.err
					})))
				app.Publish(mqfxtest.Tenant, "land", message("1"))
				func() {
					defer func() { _ = recover() }()
					app.WaitSettled(time.Minute)
				}()
				if len(f.says) != 1 || !strings.Contains(f.says[0], "not settled after 1m0s: 1 of the messages\n") || !strings.Contains(f.says[0], tc.want) {
					t.Errorf("WaitSettled says %q, want %q", f.says, tc.want)
				}
			})
		})
	}
}

func TestPublishedHasWhatNobodyConsumes(t *testing.T) {
	app := mqfxtest.New(t, mqfx.Handle(func(out publish.Publisher) consume.Handler {
		return consume.Func(consume.Subscription{Topic: "land", Group: "g"}, func(ctx context.Context, d consume.Delivery) error {
			_, err := out.Publish(ctx, d.Tenant, "landed", publish.Message{ID: d.ID, PartitionKey: "key"})
			return err
		})
	}))
	app.Publish(mqfxtest.Tenant, "land", message("1"), message("2"), message("1"))
	app.WaitSettled(time.Minute)
	for topic, want := range map[string]int{"land": 2, "landed": 2, "other": 0} {
		if got := app.Published(topic); len(got) != want || want > 0 && (got[0].ID != "1" || got[1].ID != "2" || got[0].Offset == 0) {
			t.Errorf("published to %s: %+v", topic, got)
		}
	}
}

func TestWaitSettledSaysWhoIsNotServed(t *testing.T) {
	var j journal
	f := &failing{TB: t}
	app := mqfxtest.New(f, mqfx.Handle(on("land", &j, done)))
	app.Publish("someone", "land", message("1"))
	func() {
		defer func() { _ = recover() }()
		app.WaitSettled(10 * time.Millisecond)
	}()
	if len(f.says) != 1 || !strings.Contains(f.says[0], `tenant "someone"`) || !strings.Contains(f.says[0], "the application does not serve the tenant") {
		t.Errorf("WaitSettled says %q", f.says)
	}
}

func TestExpectDeadLettersComparesAll(t *testing.T) {
	var j journal
	app := mqfxtest.New(t, mqfx.Handle(on("land", &j, func(_ context.Context, d consume.Delivery) error {
		return consume.Reject(errors.New("no"))
	})))
	f := &failing{TB: t}
	app.Publish(mqfxtest.Tenant, "land", message("1"), message("2"))
	app.WaitSettled(time.Minute)
	app.ExpectDeadLetters("land", "1", "2")
	app.ExpectDeadLetters("other")
	mqfxtest.Expecting(app, f).ExpectDeadLetters("land", "1")
	mqfxtest.Expecting(app, f).ExpectDeadLetters("land")
	if len(f.says) != 2 || !strings.Contains(f.says[0], `are ["1" "2"], want ["1"]`) {
		t.Errorf("ExpectDeadLetters says %q", f.says)
	}
}

func TestDeadLettersTellWhatHandlersGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the backoffs between attempts are minutes
		var j journal
		bad := errors.New("no such branch")
		got := make(chan backend.Failure, 1)
		app := mqfxtest.New(t,
			mqfx.WithConfig(mqfx.Config{Subscription: mqfx.Subscription{
				Ordering: "relaxed", Retry: mqfx.Retry{MaxAttempts: 3, InitialBackoff: time.Minute},
			}}),
			mqfx.Handle(
				on("land", &j, func(_ context.Context, d consume.Delivery) error {
					switch d.ID {
					case "rejected":
						return consume.Reject(bad)
					case "failed":
						return bad
					}
					return nil
				}),
				on("merge", &j, func(context.Context, consume.Delivery) error { return consume.Reject(bad) }),
				consume.Func(consume.Subscription{Topic: "merge_dlq", Group: "undertaker"}, func(_ context.Context, d consume.Delivery) error {
					f, _ := d.Failure()
					got <- f
					return nil
				}),
			))
		app.Publish(mqfxtest.Tenant, "land", message("rejected"))
		app.WaitSettled(time.Hour)
		app.Publish(mqfxtest.Tenant, "land", message("failed"), message("landed"))
		app.Publish(mqfxtest.Tenant, "merge", message("4"))
		app.WaitSettled(time.Hour)

		dead := app.DeadLetters("land")
		if len(dead) != 2 || dead[0].ID != "rejected" || dead[0].Attempts != 1 || dead[1].ID != "failed" || dead[1].Attempts != 3 {
			t.Errorf("dead letters are %+v", dead)
		}
		for _, d := range dead {
			if d.Group != "g" || !errors.Is(d.Err, bad) {
				t.Errorf("dead letter is %+v", d)
			}
		}
		// What the tracker concludes is what the queue did.
		if f := <-got; f.OriginalID != "4" || f.Attempts != app.DeadLetters("merge")[0].Attempts {
			t.Errorf("the queue says %+v", f)
		}
	})
}

// A handler that hangs spends its attempt like one that fails.
func TestAttemptsThatHangCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, d consume.Delivery) error {
			if d.ID == "hangs" || d.Attempt == 1 {
				select {
				case <-t.Context().Done():
				case <-time.After(time.Hour): // whatever ctx says
				}
			}
			return errors.New("no")
		}
		app := mqfxtest.New(t, mqfx.Handle(consume.Func(consume.Subscription{
			Topic: "land", Group: "g", HandlerTimeout: time.Second,
			Ordering: backend.Relaxed, Retry: backend.RetryPolicy{MaxAttempts: 2},
		}, hang)))
		app.Publish(mqfxtest.Tenant, "land", publish.Message{ID: "hangs", PartitionKey: "a"}, publish.Message{ID: "fails", PartitionKey: "b"})
		app.WaitSettled(24 * time.Hour)
		ids := make(map[string]int)
		for _, d := range app.DeadLetters("land") {
			ids[d.ID] = d.Attempts
		}
		if len(ids) != 2 || ids["hangs"] != 2 || ids["fails"] != 2 {
			t.Errorf("dead letters after attempts %v", ids)
		}
		time.Sleep(2 * time.Hour) // until the handlers have returned
	})
}

// Whoever redrives takes backend.Admin, and the application may wrap the queue.
func TestRedriveByAdminOfAWrappedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var admin backend.Admin
		app := mqfxtest.New(t, fx.Populate(&admin), fx.Decorate(func(q backend.Queue) backend.Queue { return q }),
			mqfx.Handle(on("land", &j, func(_ context.Context, d consume.Delivery) error {
				j.mu.Lock()
				defer j.mu.Unlock()
				if len(j.lines) == 1 {
					return consume.Reject(errors.New("not yet"))
				}
				return nil
			})))
		app.Publish(mqfxtest.Tenant, "land", message("1"))
		app.WaitSettled(time.Minute)
		if err := admin.Redrive(t.Context(), mqfxtest.Tenant, "land_dlq", "key", "1"); err != nil {
			t.Fatal(err)
		}
		app.WaitSettled(time.Minute)
		j.expect(t, "land 1", "land 1")
		app.WaitSettled(time.Minute)
	})
}

func TestRedrivenMessageIsSettledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		var q backend.Queue
		app := mqfxtest.New(t, fx.Populate(&q), mqfx.Handle(on("land", &j, func(_ context.Context, d consume.Delivery) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			if len(j.lines) == 1 {
				return consume.Reject(errors.New("not yet"))
			}
			return nil
		})))
		app.Publish(mqfxtest.Tenant, "land", message("1"))
		app.WaitSettled(time.Minute)
		if err := q.(backend.Admin).Redrive(t.Context(), mqfxtest.Tenant, "land_dlq", "key", "1"); err != nil {
			t.Fatal(err)
		}
		app.WaitSettled(time.Minute)
		j.expect(t, "land 1", "land 1")
	})
}

func TestNothingAroundTheTestCounts(t *testing.T) {
	t.Chdir("testdata") // has a config/base.yaml that is wrong
	t.Setenv(tenants.EnvVar, "acme,,")
	t.Setenv(mqfx.EnvConfig, "absent.yaml")
	t.Setenv(mqfx.EnvDSN, "nonsense")
	var cfg mqfx.Config
	var served tenants.Set
	mqfxtest.New(t, fx.Populate(&cfg, &served))
	if cfg.Backend != mqfx.BackendMemory || cfg.DSN != "" || !served.Contains(mqfxtest.Tenant) {
		t.Errorf("configuration %v, tenants %v", cfg, served)
	}
	mqfxtest.New(t, mqfx.WithConfigFiles("given.yaml"), fx.Populate(&cfg))
	if cfg.Subscription.BatchSize != 7 || cfg.DSN != "" {
		t.Errorf("configuration %v", cfg)
	}
}

func TestConfigurationOfTheTestApplies(t *testing.T) {
	var j journal
	served, err := tenants.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	var cfg mqfx.Config
	app := mqfxtest.New(t, mqfx.WithConfig(mqfx.Config{Backend: mqfx.BackendMySQL, DSN: "nonsense"}), mqfx.WithTenants(served),
		mqfx.Handle(on("land", &j, done)), fx.Populate(&cfg))
	app.Publish("acme", "land", message("1"))
	app.WaitSettled(time.Minute)
	j.expect(t, "land 1")
	if cfg.Backend != mqfx.BackendMemory {
		t.Errorf("backend is %s", cfg.Backend)
	}
}
