package consume_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

// A handler that hangs loses its message to the next attempt, and the process
// may still stop.
func TestHandlerThatNeverReturnsLosesItsMessage(t *testing.T) {
	const (
		timeout    = time.Minute
		visibility = 30 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		q, w := openQueue(t), watch()
		release := make(chan struct{})
		type attempt struct {
			number int
			at     time.Duration
		}
		attempts := make(chan attempt, 10)
		began := time.Now()
		r, err := consume.NewRunner(consume.Params{
			Subscriber: q, Logger: w.log, HandlerTimeout: timeout,
			Defaults: backend.SubscriptionConfig{VisibilityTimeout: visibility},
			Handlers: handlers(consume.Func(onMerge, func(ctx context.Context, d consume.Delivery) error {
				attempts <- attempt{d.Attempt, time.Since(began)}
				if d.Attempt > 1 {
					return nil
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, consume.ErrHandlerTimeout) {
					t.Errorf("the context ended with %v", cause)
				}
				if took := time.Since(began); took != timeout {
					t.Errorf("the context ended after %v", took)
				}
				<-release
				return nil
			})),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, q, "docs", "k", task{Name: "a"})
		if first := <-attempts; first.number != 1 {
			t.Errorf("began with attempt %d", first.number)
		}
		second := <-attempts
		if second.number != 2 || second.at < timeout || second.at > timeout+visibility+backend.DefaultPollInterval {
			t.Errorf("got attempt %d after %v, want 2 within a visibility timeout after %v", second.number, second.at, timeout)
		}
		ignored := w.logs.FilterMessageSnippet("ignores the end of its context").All()
		if len(ignored) != 1 {
			t.Fatalf("logged %v, want one warning", w.logs.All())
		}
		fields := ignored[0].ContextMap()
		if after := ignored[0].Time.Sub(began); ignored[0].Level != zap.WarnLevel || after != timeout+visibility/2 ||
			fields["topic"] != "merge" || fields["tenant"] != "docs" || fields["partition_key"] != "k" ||
			fields["id"] == "" || fields["cause"] != consume.ErrHandlerTimeout.Error() {
			t.Errorf("after %v: logged %v %v", after, ignored[0].Entry, fields)
		}

		stopped := time.Now()
		err = r.Stop(context.Background())
		if err == nil || !strings.Contains(err.Error(), `1 run on, ignoring the end of their context (topic "merge", group "lander": 1)`) {
			t.Errorf("Stop: %v", err)
		}
		if took := time.Since(stopped); took > time.Second {
			t.Errorf("Stop took %v", took)
		}
		select {
		case <-r.Done():
			t.Error("Done beside a running handler")
		default:
		}
		close(release)
		<-r.Done()
		if err := r.Stop(context.Background()); err != nil {
			t.Errorf("Stop after all have returned: %v", err)
		}
		if late := w.logs.FilterMessageSnippet("returned long after its timeout").Len(); late != 1 {
			t.Errorf("logged %v, want the late result once", w.logs.All())
		}
		if len(attempts) > 0 {
			t.Errorf("and more: %v", <-attempts)
		}
	})
}

// Stop may come before the hanging handler is given up: it waits for that, not
// for the handler.
func TestStopDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t)
		begun, release := make(chan struct{}, 10), make(chan struct{})
		r, err := consume.NewRunner(consume.Params{
			Subscriber: q, HandlerTimeout: time.Minute,
			Handlers: handlers(consume.Func(onMerge, func(context.Context, consume.Delivery) error {
				begun <- struct{}{}
				<-release
				return nil
			})),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, q, "docs", "k", task{Name: "a"})
		<-begun
		began := time.Now()
		if err := r.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "1 run on") {
			t.Errorf("Stop: %v", err)
		}
		if took, most := time.Since(began), time.Minute+backend.DefaultVisibilityTimeout; took > most {
			t.Errorf("Stop took %v, want at most %v", took, most)
		}
		close(release)
		<-r.Done()
	})
}

// Whatever a handler returns after its time, the attempt has failed.
func TestLateResultIsAFailedAttempt(t *testing.T) {
	for _, c := range []struct {
		name   string
		result func(ctx context.Context) error
		is     error
		says   string
	}{
		{"nil", func(context.Context) error { return nil }, consume.ErrHandlerTimeout, "after 1m0s and returned ack too late"},
		{"error", func(context.Context) error { return errBroken }, errBroken, "after 1m0s: build is broken"},
		{"context", func(ctx context.Context) error { return ctx.Err() }, context.DeadlineExceeded, "after 1m0s: context deadline"},
		{"cause", context.Cause, consume.ErrHandlerTimeout, "handler timed out"},
		{"reject", func(context.Context) error { return consume.Reject(errBroken) }, errBroken, "returned reject too late: build is broken"},
		{"postpone", func(context.Context) error { return consume.Postpone(time.Hour) }, consume.ErrHandlerTimeout, "returned postpone too late"},
		{"panic", func(context.Context) error { panic("lost my mind") }, consume.ErrHandlerTimeout, "panic: lost my mind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{}
				start(t, s, consume.Params{HandlerTimeout: time.Hour, Handlers: handlers(consume.Func(
					consume.Subscription{Topic: "merge", Group: "g", HandlerTimeout: time.Minute},
					func(ctx context.Context, d consume.Delivery) error {
						<-ctx.Done()
						err := c.result(ctx)
						if got := d.Outcome(err); got != "nack" {
							t.Errorf("the outcome foretold is %s", got)
						}
						return err
					}))})
				got := <-s.deliver("merge", backend.Message{Tenant: "docs"}).settled
				if got.verb != "nack" || !errors.Is(got.cause, consume.ErrHandlerTimeout) || !errors.Is(got.cause, c.is) ||
					!strings.Contains(got.cause.Error(), c.says) || strings.Count(got.cause.Error(), "timed out") != 1 {
					t.Errorf("got %s, cause %v", got.verb, got.cause)
				}
			})
		})
	}
}

func TestHandlerInTimeIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		start(t, s, consume.Params{HandlerTimeout: time.Minute, Handlers: handlers(consume.Func(onMerge,
			func(ctx context.Context, _ consume.Delivery) error {
				time.Sleep(time.Minute - 1)
				return ctx.Err()
			}))})
		if got := <-s.deliver("merge", backend.Message{}).settled; got.verb != "ack" {
			t.Errorf("got %s, cause %v", got.verb, got.cause)
		}
	})
}

// Extensions end with the handler's time, and so do those it asked for itself.
func TestVisibilityIsNotExtendedBeyondTheTimeout(t *testing.T) {
	limited := consume.Subscription{Topic: "merge", Group: "lander", HandlerTimeout: 20 * time.Second}
	deaf := func(context.Context, consume.Delivery) error { time.Sleep(time.Minute); return nil }
	for _, c := range []struct {
		name   string
		handle func(context.Context, consume.Delivery) error
		want   []string
	}{
		{"by itself", deaf, []string{"10:40"}},
		{"by the handler", func(ctx context.Context, d consume.Delivery) error {
			if err := d.Extend(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			return deaf(ctx, d)
		}, []string{"0:50"}},
		{"by the handler, too late", func(ctx context.Context, d consume.Delivery) error {
			<-ctx.Done()
			if err := d.Extend(context.WithoutCancel(ctx), time.Second); !errors.Is(err, consume.ErrHandlerTimeout) {
				t.Errorf("got error %v", err)
			}
			return nil
		}, []string{"10:40"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := extensions(t, limited, c.handle); !slices.Equal(got, c.want) {
				t.Errorf("extended at:to %v, want %v", got, c.want)
			}
		})
	}
}

// A handler that ignores a lost lease is given up like one that ignores its
// timeout.
func TestHandlerThatIgnoresALostLeaseIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &script{}, watch()
		begun, release := make(chan struct{}), make(chan struct{})
		r := start(t, s, consume.Params{Logger: w.log, Handlers: handlers(consume.Func(onMerge,
			func(context.Context, consume.Delivery) error { close(begun); <-release; return nil }))})
		defer close(release)
		d := s.deliver("merge", backend.Message{ID: "7"})
		<-begun
		d.end(backend.ErrLeaseLost)
		time.Sleep(backend.DefaultVisibilityTimeout/2 - 1)
		if w.logs.Len() > 0 {
			t.Errorf("too early: %v", w.logs.All())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if logs := w.logs.All(); len(logs) != 1 || logs[0].ContextMap()["id"] != "7" || logs[0].ContextMap()["cause"] != backend.ErrLeaseLost.Error() {
			t.Errorf("logged %v", logs)
		}
		if err := r.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "1 run on") {
			t.Errorf("Stop: %v", err)
		}
	})
}

func TestHandlerTimeoutHasBounds(t *testing.T) {
	for _, d := range []time.Duration{-1, time.Millisecond - 1, backend.MaxDuration + 1} {
		_, err := consume.NewRunner(consume.Params{Subscriber: &script{}, HandlerTimeout: d})
		checkField(t, err, "consume.Params.HandlerTimeout", d.String())
		_, err = consume.NewRunner(consume.Params{Subscriber: &script{}, Handlers: handlers(
			consume.Func(consume.Subscription{Topic: "merge", Group: "g", HandlerTimeout: d}, nothing))})
		checkField(t, err, "handler timeout", d.String(), "consume_test.nothing", `"merge"`)
		_, err = consume.NewRunner(consume.Params{
			Subscriber: &script{}, Handlers: handlers(consume.Func(onMerge, nothing)),
			Middleware: []consume.Middleware{consume.Timeout(d)},
		})
		checkField(t, err, "timeout", d.String(), "consume_test.nothing", `middleware "timeout"`)
	}
	for _, d := range []time.Duration{time.Millisecond, backend.MaxDuration} {
		_, err := consume.NewRunner(consume.Params{
			Subscriber: &script{}, HandlerTimeout: d, Middleware: []consume.Middleware{consume.Timeout(d)},
			Handlers: handlers(consume.Func(consume.Subscription{Topic: "merge", Group: "g", HandlerTimeout: d}, nothing)),
		})
		if err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// checkField fails the test unless err refuses a field and says all of says.
func checkField(t *testing.T, err error, field string, says ...string) {
	t.Helper()
	f, ok := errors.AsType[*backend.FieldError](err)
	if !ok || f.Field != field || !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("got error %v, want one of field %q", err, field)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

// Timeout asks a handler to end, and takes nothing from it.
func TestTimeoutMiddleware(t *testing.T) {
	for _, c := range []struct {
		name   string
		result func(context.Context) error
		verb   string
		says   string
	}{
		{"nil", func(context.Context) error { return nil }, "ack", ""},
		{"context", func(ctx context.Context) error { return ctx.Err() }, "nack", "handler timed out after 1s: context deadline exceeded"},
		{"reject", func(context.Context) error { return consume.Reject(errBroken) }, "reject", "handler timed out after 1s: build is broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{}
				start(t, s, consume.Params{
					Middleware: []consume.Middleware{consume.Timeout(time.Second)},
					Handlers: handlers(consume.Func(onMerge, func(ctx context.Context, d consume.Delivery) error {
						began := time.Now()
						<-ctx.Done()
						if took := time.Since(began); took != time.Second || !errors.Is(context.Cause(ctx), consume.ErrHandlerTimeout) {
							t.Errorf("the context ended after %v with %v", took, context.Cause(ctx))
						}
						return c.result(ctx)
					})),
				})
				got := <-s.deliver("merge", backend.Message{}).settled
				if got.verb != c.verb || got.cause != nil && got.cause.Error() != c.says {
					t.Errorf("got %s, cause %v", got.verb, got.cause)
				}
			})
		})
	}
	t.Run("an error in time is left alone", func(t *testing.T) {
		s := &script{}
		start(t, s, consume.Params{
			Middleware: []consume.Middleware{consume.Timeout(time.Hour)},
			Handlers:   handlers(consume.Func(onMerge, func(context.Context, consume.Delivery) error { return errBroken })),
		})
		if got := await(t, "an outcome", s.deliver("merge", backend.Message{}).settled); got.cause != errBroken { //nolint:errorlint // it must not be wrapped
			t.Errorf("got cause %v", got.cause)
		}
	})
}
