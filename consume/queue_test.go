package consume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// openQueue returns a queue of tenants docs and ios that the test closes.
func openQueue(t *testing.T) backend.Queue {
	t.Helper()
	set, err := tenants.New("docs", "ios")
	if err != nil {
		t.Fatal(err)
	}
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(context.Background()); err != nil {
			t.Errorf("close the queue: %v", err)
		}
	})
	return q
}

// run starts handlers on q; stop stops them, in time unless ctx has ended.
func run(t *testing.T, q backend.Queue, h ...consume.Handler) (stop func(context.Context) error) {
	t.Helper()
	r, err := consume.NewRunner(consume.Params{
		Subscriber: q, Handlers: h,
		Defaults: backend.SubscriptionConfig{
			Retry: backend.RetryPolicy{MaxAttempts: 3, InitialBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		err := r.Stop(ctx)
		await(t, "the handlers to return", r.Done())
		return err
	}
}

type task struct {
	Name string `json:"name"`
	Do   string `json:"do"`
}

func put(t *testing.T, q backend.Queue, tenant tenants.ID, key string, tasks ...task) {
	t.Helper()
	var msgs []publish.Message
	for _, task := range tasks {
		payload, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, publish.Message{ID: publish.IntentID(task.Name, "put"), PartitionKey: key, Payload: payload})
	}
	if _, err := publish.New(q).Publish(t.Context(), tenant, "merge", msgs...); err != nil {
		t.Fatal(err)
	}
}

// Every outcome, in order within each partition, as a real queue carries it
// out.
func TestHandlersOnAQueue(t *testing.T) {
	q := openQueue(t)
	type event struct{ tenant, key, what string }
	events := make(chan event, 1000)
	note := func(d consume.Delivery, format string, args ...any) {
		events <- event{string(d.Tenant), d.PartitionKey, fmt.Sprintf(format, args...)}
	}
	var once sync.Map
	stop := run(t, q,
		consume.JSON(onMerge, func(ctx context.Context, work task, d consume.Delivery) error {
			if id, ok := tenants.FromContext(ctx); !ok || id != d.Tenant || d.Metadata[publish.QueueNameKey] != string(id) {
				t.Errorf("tenant %q in the context, %q in metadata %v", id, d.Tenant, d.Metadata)
			}
			note(d, "%s/%d", work.Name, d.Attempt)
			_, again := once.LoadOrStore(string(d.Tenant)+d.PartitionKey+d.ID, true)
			switch {
			case work.Do == "fail once" && !again:
				return errBroken
			case work.Do == "postpone once" && !again:
				return consume.Postpone(time.Millisecond)
			case work.Do == "reject":
				return consume.Reject(errBroken)
			case work.Do == "panic":
				panic("lost my mind")
			}
			return nil
		}),
		consume.Func(on("merge_dlq", "mourner"), func(_ context.Context, d consume.Delivery) error {
			f, ok := d.Failure()
			first, stack, _ := strings.Cut(f.LastError, "\n")
			note(d, "dead: %v %s %s %d %q %v", ok, f.OriginalTopic, f.Group, f.Attempts, first, strings.Contains(stack, "TestHandlersOnAQueue"))
			return nil
		}),
	)
	tasks := []task{
		{"a", ""}, {"b", "fail once"}, {"c", ""}, {"d", "postpone once"}, {"e", "reject"}, {"f", "panic"}, {"g", ""},
	}
	want := []string{"a/1", "b/1", "b/2", "c/1", "d/1", "d/1", "e/1", "f/1", "f/2", "f/3", "g/1"}
	dead := []string{
		`dead: true merge lander 1 "build is broken" false`,
		`dead: true merge lander 3 "panic: lost my mind" true`,
	}
	partitions := 0
	for _, tenant := range []tenants.ID{"docs", "ios"} {
		for k := range 20 {
			put(t, q, tenant, fmt.Sprint("k", k), tasks...)
			partitions++
		}
	}

	got, buried := make(map[event][]string), make(map[event][]string)
	for range partitions * (len(want) + len(dead)) {
		e := await(t, "what the handlers do", events)
		in := got
		if strings.HasPrefix(e.what, "dead") {
			in = buried
		}
		p := event{tenant: e.tenant, key: e.key}
		in[p] = append(in[p], e.what)
	}
	if err := stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if len(got) != partitions || len(buried) != partitions {
		t.Errorf("%d and %d partitions, want %d", len(got), len(buried), partitions)
	}
	for p := range got {
		if fmt.Sprint(got[p]) != fmt.Sprint(want) {
			t.Errorf("%v: got %v, want %v", p, got[p], want)
		}
		if fmt.Sprint(buried[p]) != fmt.Sprint(dead) {
			t.Errorf("%v: got %v, want %v", p, buried[p], dead)
		}
	}
	if len(events) > 0 {
		t.Errorf("and more: %v", <-events)
	}
}

func TestStopThatCutsOffSpendsNoAttempt(t *testing.T) {
	q := openQueue(t)
	begun := make(chan struct{}, 1)
	stop := run(t, q, consume.Func(onMerge, until(begun)))
	put(t, q, "docs", "k", task{Name: "a"})
	await(t, "the handler", begun)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stop(over); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 deliveries cut off") {
		t.Errorf("Stop: %v", err)
	}

	attempts := make(chan int, 1)
	stop = run(t, q, consume.Func(onMerge, func(_ context.Context, d consume.Delivery) error {
		attempts <- d.Attempt
		return nil
	}))
	if attempt := await(t, "the next attempt", attempts); attempt != 1 {
		t.Errorf("got attempt %d, want 1", attempt)
	}
	if err := stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// A handler that takes many times the visibility timeout is not given its
// message twice.
func TestLongHandlerIsAloneWithItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t)
		done := make(chan error, 10)
		stop := run(t, q, consume.Func(onMerge, func(ctx context.Context, d consume.Delivery) error {
			select {
			case <-ctx.Done():
				done <- context.Cause(ctx)
			case <-time.After(10 * backend.DefaultVisibilityTimeout):
				done <- nil
			}
			return nil
		}))
		put(t, q, "docs", "k", task{Name: "a"})
		if err := <-done; err != nil {
			t.Errorf("interrupted: %v", err)
		}
		time.Sleep(4 * backend.DefaultVisibilityTimeout) // for a second attempt that should not come
		if err := stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if len(done) > 0 {
			t.Error("handled twice")
		}
	})
}

// A start that fails after some handlers were subscribed leaves the queue as it
// was.
func TestFailedStartOnAQueue(t *testing.T) {
	q := openQueue(t)
	ran := func(context.Context, consume.Delivery) error { t.Error("a handler ran"); return nil }
	put(t, q, "docs", "k", task{Name: "a"})
	r, err := consume.NewRunner(consume.Params{Subscriber: q, Handlers: handlers(consume.Func(onMerge, ran))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	attempts := make(chan int, 1)
	stop := run(t, q, consume.Func(onMerge, func(_ context.Context, d consume.Delivery) error {
		attempts <- d.Attempt
		return nil
	}))
	if attempt := await(t, "the first attempt", attempts); attempt != 1 {
		t.Errorf("got attempt %d, want 1", attempt)
	}
	if err := stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
