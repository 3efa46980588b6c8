package memory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{MaxPayload: -1},
		{MaxPayload: MaxMaxPayload + 1},
		{MaxMetadata: 1},
		{MaxMetadata: MaxMaxMetadata + 1},
		{GroupRetention: MinGroupRetention - 1},
		{GroupRetention: MaxGroupRetention + 1},
	} {
		var field *backend.FieldError
		if _, err := NewQueue(Params{Config: c}); !errors.As(err, &field) {
			t.Errorf("NewQueue(%+v): %v, want a FieldError", c, err)
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	good := change("key", "id")
	for name, spoil := range map[string]func(*backend.Message){
		"tenant":        func(m *backend.Message) { m.Tenant = "" },
		"topic":         func(m *backend.Message) { m.Topic = "a " },
		"partition key": func(m *backend.Message) { m.PartitionKey = "\xff" },
		"message id":    func(m *backend.Message) { m.ID = strings.Repeat("ä", 256) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			bad := good
			spoil(&bad)
			_, err := b.Publish(t.Context(), good, bad)
			if field := (*backend.FieldError)(nil); !errors.As(err, &field) || field.Field != name {
				t.Errorf("error %v, want a FieldError of %s", err, name)
			}
			b.left(Stats{}) // nor is the good one stored
		})
	}
}

func TestPublishRefusesWhatIsTooLarge(t *testing.T) {
	q, err := NewQueue(Params{Config: Config{MaxPayload: 10, MaxMetadata: 12}})
	if err != nil {
		t.Fatal(err)
	}
	m := change("key", "id")
	m.Payload, m.Metadata = make([]byte, 10), map[string]string{"a": "1234"} // {"a":"1234"}
	if _, err := q.Publish(t.Context(), m); err != nil {
		t.Errorf("at the caps: %v", err)
	}
	for field, larger := range map[string]func(*backend.Message){
		"payload":  func(m *backend.Message) { m.Payload = make([]byte, 11) },
		"metadata": func(m *backend.Message) { m.Metadata = map[string]string{"a": "12345"} },
	} {
		large := m
		larger(&large)
		_, err := q.Publish(t.Context(), large)
		refused := (*backend.FieldError)(nil)
		if !errors.Is(err, backend.ErrTooLarge) || !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s over the cap: %v, want ErrTooLarge in a FieldError of it", field, err)
		}
	}
}

func TestRepeatIsRecognisedWhileStored(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	receipts, err := b.Publish(t.Context(), change("key", "a"), change("key", "b"), change("key", "a"), change("other", "a"))
	if err != nil {
		t.Fatal(err)
	}
	a := receipts[0].Offset
	equal(t, "receipts", []backend.Receipt{{Offset: a}, {Offset: a + 1}, {Offset: a, Duplicate: true}, {Offset: a + 2}}, receipts)

	grant := m.take("key", a+1)
	m.settle(engine.Settlement{Lease: grant.Lease, Run: []uint64{a}})
	again, err := b.Publish(t.Context(), change("key", "a"), change("key", "b"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "receipts once the first is settled", []backend.Receipt{{Offset: a + 3}, {Offset: a + 1, Duplicate: true}}, again)
}

func TestQueueSharesNoMemoryWithCallers(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	want := change("key", "id")
	sent := change("key", "id")
	if _, err := b.Publish(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	scribble := func(m backend.Message) { m.Payload[0], m.Metadata["id"], m.Metadata["new"] = '!', "x", "y" }
	scribble(sent)
	for range 2 {
		got := m.read("key")[0].Message
		want.Offset, want.PublishedAt = got.Offset, b.now
		equal(t, "message", want, got)
		scribble(got)
	}

	// Nor does a dead letter show what its handler did to the message.
	got := m.read("key")[0].Message
	scribble(got)
	m.settle(engine.Settlement{
		Lease: m.take("key", 1).Lease, Run: []uint64{1}, DeadLetters: []engine.DeadLetter{{Message: got}},
	})
	dead := b.joinTopic(changes+"_dlq", backend.SubscriptionConfig{Group: "landers"})
	equal(t, "payload of the dead letter", want.Payload, dead.read("key")[0].Payload)
}

func TestTimesAreMilliseconds(t *testing.T) {
	b := newBench(t)
	b.pass(1_234_567 * time.Nanosecond)
	m := b.join("landers")
	b.publish("key", "id")
	if got, want := m.read("key")[0].PublishedAt, b.now.Truncate(time.Millisecond); !got.Equal(want) {
		t.Errorf("published at %v, want %v", got, want)
	}
}

func TestPublishTxNeedsADatabase(t *testing.T) {
	_, err := newBench(t).PublishTx(t.Context(), nil, change("key", "id"))
	if !errors.Is(err, backend.ErrNotSupported) {
		t.Errorf("error %v, want ErrNotSupported", err)
	}
}

func TestNothingWorksAfterClose(t *testing.T) {
	b := newBench(t)
	b.join("landers")
	b.tenants = oneTenant(t)
	for range 2 {
		if err := b.Close(t.Context()); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	_, publish := b.Publish(t.Context(), change("key", "id"))
	_, subscribe := b.Subscribe(t.Context(), changes, backend.SubscriptionConfig{Group: "landers"})
	for call, err := range map[string]error{
		"Publish":   publish,
		"Subscribe": subscribe,
		"Pause":     b.Pause(t.Context(), tenant, changes, "landers"),
		"Resume":    b.Resume(t.Context(), tenant, changes, "landers"),
		"Redrive":   b.Redrive(t.Context(), tenant, changes, "key", "id"),
		"DropGroup": b.DropGroup(t.Context(), tenant, changes, "landers"),
	} {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", call, err)
		}
	}
}

func TestEndedContextIsHonoured(t *testing.T) {
	b := newBench(t)
	m := b.join("landers")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, publish := b.Publish(ctx, change("key", "id"))
	_, settle := m.Settle(ctx, tenant, nil)
	for call, err := range map[string]error{"Publish": publish, "Settle": settle} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
	}
	b.left(Stats{Heartbeats: 1})
}

// A watermark that has passed an offset has passed every message below it, so
// none may appear there later.
func TestNoMessageIsSkipped(t *testing.T) {
	const publishers, each = 8, 500
	b := newBench(t)
	m := b.join("landers")
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				if _, err := b.Publish(t.Context(), change("key", fmt.Sprintf("%d-%d", p, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}

	grant := m.take("key", 0)
	watermark := grant.Watermark
	seen := make(map[string]bool)
	for len(seen) < publishers*each && !t.Failed() {
		page := m.fetch(engine.Range{Key: "key", After: watermark, Through: 1 << 62, Limit: 100})[0]
		var run []uint64
		for _, msg := range page.Messages {
			seen[msg.ID] = true
			run = append(run, msg.Offset)
		}
		r := m.settle(engine.Settlement{Lease: grant.Lease, Run: run})
		if len(r.Late) > 0 {
			t.Fatalf("late: %v", r.Late)
		}
		watermark = r.Watermark
	}
	wg.Wait()
	b.left(Stats{Watermarks: 1, Leases: 1, Heartbeats: 1})
}

func oneTenant(t *testing.T) tenants.Set {
	t.Helper()
	set, err := tenants.New(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSubscribeNeedsTenants(t *testing.T) {
	_, err := newBench(t).Subscribe(t.Context(), changes, backend.SubscriptionConfig{Group: "landers"})
	if field := (*backend.FieldError)(nil); !errors.As(err, &field) || field.Field != "tenants" {
		t.Errorf("error %v, want a FieldError of tenants", err)
	}
}
