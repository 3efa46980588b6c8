package mqfxtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/mqfx/mqfxtest"
	"github.com/tenantmq/tenantmq/publish"
)

// Lander lands changes, all but those that conflict.
type Lander struct{ landed []string }

func (l *Lander) Subscription() consume.Subscription {
	return consume.Subscription{Topic: "land", Group: "lander"}
}

func (l *Lander) Handle(_ context.Context, d consume.Delivery) error {
	if d.ID == "conflict" {
		return consume.Reject(errors.New("does not merge"))
	}
	l.landed = append(l.landed, d.ID)
	return nil
}

// A test of a handler: publish, wait until all is settled, look.
func ExampleNew() {
	t := newT() // the *testing.T of a test
	defer t.end()

	lander := new(Lander)
	app := mqfxtest.New(t, mqfx.Handle(lander))
	app.Publish(mqfxtest.Tenant, "land",
		publish.Message{ID: "change-1", PartitionKey: "main"},
		publish.Message{ID: "conflict", PartitionKey: "main"},
		publish.Message{ID: "change-2", PartitionKey: "main"},
	)
	app.WaitSettled(5 * time.Second)
	fmt.Println("landed", lander.landed)
	app.ExpectDeadLetters("land", "conflict")
	// Output: landed [change-1 change-2]
}

func ExampleApp_DeadLetters() {
	t := newT() // the *testing.T of a test
	defer t.end()

	app := mqfxtest.New(t, mqfx.Handle(new(Lander)))
	app.Publish(mqfxtest.Tenant, "land", publish.Message{ID: "conflict", PartitionKey: "main"})
	app.WaitSettled(5 * time.Second)
	for _, d := range app.DeadLetters("land") {
		fmt.Printf("%s of group %s after %d attempt: %v\n", d.ID, d.Group, d.Attempts, d.Err)
	}
	// Output: conflict of group lander after 1 attempt: does not merge
}

// exampleT lets examples stand in for tests.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func newT() *exampleT { return new(exampleT) }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Name() string                      { return "example" }
func (t *exampleT) Context() context.Context          { return context.Background() }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Logf(string, ...any)               {}
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleT) FailNow()                          { panic("failed") }
func (t *exampleT) Failed() bool                      { return false }

func (t *exampleT) end() {
	for i := range t.cleanups {
		t.cleanups[len(t.cleanups)-1-i]()
	}
}
