// Package mqfxtest tests services: [New] starts the queue's module in the
// process, on a queue of its own, together with the handlers under test.
//
//	func TestLand(t *testing.T) {
//		app := mqfxtest.New(t, mqfx.Handle(NewLandHandler), fx.Provide(NewStore))
//		app.Publish(mqfxtest.Tenant, "land", publish.Message{ID: "1", PartitionKey: "main"})
//		app.WaitSettled(5 * time.Second)
//		// look into the store
//	}
//
// Nothing around the test counts: neither MQ_TENANTS, MQ_CONFIG and MQ_DSN nor
// files in the working directory. Configuration is given by [mqfx.WithConfig] or
// [mqfx.WithConfigFiles], tenants by [mqfx.WithTenants]; the backend is memory
// whatever they say.
//
// # Time
//
// Inside a testing/synctest bubble the clock is a fake one: backoffs and
// postponements of hours take a second or less. (The queue's own loops tick all
// along: a fake day costs a few seconds.) Everything about the queue but
// PublishTx works there.
//
//	func TestLandIsTriedTwice(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			app := mqfxtest.New(t, mqfx.Handle(NewLandHandler)) // fails at first, or postpones by an hour
//			app.Publish(mqfxtest.Tenant, "land", publish.Message{ID: "1", PartitionKey: "main"})
//			app.WaitSettled(24 * time.Hour)
//			app.ExpectDeadLetters("land")
//		})
//	}
//
// # What a handler publishes
//
// [App.Published] has what went to a topic that no handler of the test consumes.
// The memory backend has no transactions: PublishTx returns
// backend.ErrNotSupported. Put what a transaction does behind an interface of
// yours, with a second implementation for tests that calls Publish, as the
// example services do; or test it on a database, by fxtest with mqfx.Module.
package mqfxtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap/zaptest"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/mqfx/internal/harness"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Tenant is the one a test's application serves unless [mqfx.WithTenants] lists
// others.
const Tenant tenants.ID = "test"

// App is an application under test. Its methods are safe for concurrent use,
// except that those which fail the test belong to its goroutine.
type App struct {
	t         testing.TB
	publisher publish.Publisher
	served    tenants.Set
	tracker   *tracker
}

// New starts an application of [mqfx.Module] and opts, and stops it when t ends.
// It fails t if the application does not start, or does not stop within Fx's
// stop timeout. opts must not list mqfx.Module again.
func New(t testing.TB, opts ...fx.Option) *App {
	t.Helper()
	served, err := tenants.New(Tenant)
	if err != nil {
		t.Fatal(err)
	}
	a := &App{t: t, tracker: newTracker()}
	app := fxtest.New(t,
		fx.NopLogger,
		mqfx.Module,
		fx.Supply(&harness.Memory{Tenants: served, Logger: zaptest.NewLogger(t), Opened: a.tracker.opened, Wrap: a.tracker.wrap}),
		fx.Options(opts...),
		fx.Populate(&a.publisher, &a.served),
	)
	app.RequireStart()
	t.Cleanup(app.RequireStop)
	return a
}

// Publish publishes through the application's publisher and fails the test on
// an error.
func (a *App) Publish(tenant tenants.ID, topic string, msgs ...publish.Message) []backend.Receipt {
	a.t.Helper()
	receipts, err := a.publisher.Publish(a.t.Context(), tenant, topic, msgs...)
	if err != nil {
		a.t.Fatal(err)
	}
	return receipts
}

// maxPending bounds the messages that an error lists.
const maxPending = 10

// WaitSettled returns once the handlers have settled every message of their
// topics: those published before, those that handlers published meanwhile, and
// so on. A message waiting for its next attempt is not settled; one given up
// is. It fails the test if that takes longer than within, and names the messages.
func (a *App) WaitSettled(within time.Duration) {
	a.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		event := a.tracker.next()
		left := a.tracker.unsettled()
		if left == 0 {
			return
		}
		select {
		case <-event:
		case <-time.After(recheck): // a stored message may go without one, when its group is dropped
		case <-deadline.C:
			a.t.Fatalf("not settled after %v: %d of the messages\n%s", within, left, strings.Join(a.tracker.pending(maxPending, a.served), "\n"))
		}
	}
}

// recheck is how long WaitSettled relies on being told.
const recheck = time.Second

// Published returns the messages published to topic by anybody in the
// application, the test included, in that order, whether or not a handler
// consumes them.
func (a *App) Published(topic string) []backend.Message { return a.tracker.messagesOf(topic) }

// DeadLetter is a message that a handler has given up, and why.
type DeadLetter struct {
	// Message as the handler got it.
	backend.Message
	Group    string
	Attempts int
	// Err is what the handler returned last.
	Err error
}

// ExpectDeadLetters fails the test unless the handlers have given up exactly the
// messages of topic with these ids, in the order in which they were published. The
// test goes on.
func (a *App) ExpectDeadLetters(topic string, ids ...string) {
	a.t.Helper()
	got := []string{}
	for _, d := range a.DeadLetters(topic) {
		got = append(got, d.ID)
	}
	if !slices.Equal(got, ids) {
		a.t.Errorf("dead letters of topic %q are %q, want %q", topic, got, ids)
		for _, d := range a.DeadLetters(topic) {
			a.t.Logf("id %q, group %q, after %d attempts: %v", d.ID, d.Group, d.Attempts, d.Err)
		}
	}
}

// DeadLetters returns the messages of topic that handlers have given up, in the
// order in which they were published, those that were redriven since included.
// Those of a subscription without dead letters are not kept.
func (a *App) DeadLetters(topic string) []DeadLetter {
	return slices.DeleteFunc(a.tracker.deadLetters(), func(d DeadLetter) bool { return d.Topic != topic })
}
