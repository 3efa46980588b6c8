package mysql

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/backend"
)

func TestNewQueueChecksItsConfiguration(t *testing.T) {
	db, err := Open("user@tcp(127.0.0.1:1)/mq") // nobody connects
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, p := range map[string]Params{
		"db: must not be nil; mysql.Open makes one": {},
		"max payload 15728641: want 1 to 15728640":  {DB: db, Config: Config{MaxPayload: MaxMaxPayload + 1}},
		"max payload -1":                           {DB: db, Config: Config{MaxPayload: -1}},
		"max metadata 1: want 2 to 1048576":        {DB: db, Config: Config{MaxMetadata: 1}},
		"max batch rows 1001: want 1 to 1000":      {DB: db, Config: Config{MaxBatchRows: 1001}},
		"max batch bytes 5: want 65536":            {DB: db, Config: Config{MaxBatchBytes: 5}},
		"publish timeout 5ns: want 10ms to 1h0m0s": {DB: db, Config: Config{PublishTimeout: 5}},
		"publish timeout -1s: want 10ms to 1h0m0s": {DB: db, Config: Config{PublishTimeout: -time.Second}},
		"tenant metrics -1: want 0 to 1000":        {DB: db, TenantMetrics: -1},
		"tenant metrics 1001: want 0 to 1000":      {DB: db, TenantMetrics: 1001},
	} {
		_, err := NewQueue(p)
		if _, ok := errors.AsType[*backend.FieldError](err); !ok || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	q, err := NewQueue(Params{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		MaxPayload: 1 << 20, MaxMetadata: 16 << 10, MaxBatchRows: 1_000, MaxBatchBytes: 4 << 20, PublishTimeout: 30 * time.Second,
		GroupRetention: 7 * 24 * time.Hour,
	}
	if diff := cmp.Diff(want, q.cfg); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := q.Close(t.Context()); err != nil { // without ever having connected
		t.Error(err)
	}
}

func TestSubscribeRefusesBeforeTheDatabase(t *testing.T) {
	db, err := Open("user@tcp(127.0.0.1:1)/mq") // nobody connects
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	none := newTestQueue(t, Params{DB: db})
	some := newTestQueue(t, Params{DB: db, Tenants: someTenants(t)})
	for name, c := range map[string]struct {
		q     *Queue
		topic string
		cfg   backend.SubscriptionConfig
	}{
		"tenants: a subscriber needs at least one": {none, "t", backend.SubscriptionConfig{Group: "g"}},
		"topic: must not be empty":                 {some, "", backend.SubscriptionConfig{Group: "g"}},
		"consumer group: must not be empty":        {some, "t", backend.SubscriptionConfig{}},
		"topic of 252 bytes: with the dead letter": {some, strings.Repeat("t", 252), backend.SubscriptionConfig{Group: "g"}},
	} {
		_, err := c.q.Subscribe(t.Context(), c.topic, c.cfg)
		if _, ok := errors.AsType[*backend.FieldError](err); !ok || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

func TestDefaultSubscriberNamesAreValidAndUnique(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		name := defaultSubscriberName()
		if err := backend.CheckSubscriberName(name); err != nil || seen[name] {
			t.Errorf("%q: %v, seen %v", name, err, seen[name])
		}
		seen[name] = true
	}
}

func TestCloseIsIdempotentAndFinal(t *testing.T) {
	db := migratedDB(t)
	q, err := NewQueue(Params{DB: db, Tenants: someTenants(t)})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, q, message("a", "t", "k", 1))
	sub, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	d := <-sub.Deliveries()
	if err := d.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := q.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if _, open := <-sub.Deliveries(); open {
		t.Error("the subscription still delivers")
	}
	tx := begin(t, db)
	for name, do := range map[string]func() error{
		"Verify":    func() error { return q.Verify(t.Context()) },
		"Publish":   func() error { _, err := q.Publish(t.Context(), message("a", "t", "k", 2)); return err },
		"PublishTx": func() error { _, err := q.PublishTx(t.Context(), tx, message("a", "t", "k", 2)); return err },
		"Subscribe": func() error {
			_, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "g"})
			return err
		},
	} {
		if err := do(); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
	mustCommit(t, tx)
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the pool was closed: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// Handlers that are draining may still publish.
func TestHandlersPublishWhileTheQueueCloses(t *testing.T) {
	db := migratedDB(t)
	q, err := NewQueue(Params{DB: db, Tenants: someTenants(t)})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, q, message("a", "t", "k", 1))
	sub, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "g"})
	if err != nil {
		t.Fatal(err)
	}
	d := <-sub.Deliveries()
	closed := make(chan error, 1)
	go func() { closed <- q.Close(context.WithoutCancel(t.Context())) }()
	eventually(t, "the queue is closing", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.closing
	})
	if _, err := q.Subscribe(t.Context(), "t", backend.SubscriptionConfig{Group: "late"}); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("a late subscription: %v", err)
	}
	mustPublish(t, q, message("a", "next", "k", 1))
	if err := d.Ack(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages WHERE topic = 'next'"); n != 1 {
		t.Error("the message published while draining is gone")
	}
}

func TestCloseCutsOffWhatIsStuck(t *testing.T) {
	db := migratedDB(t)
	q, err := NewQueue(Params{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, q, message("a", "t", "k", 1))
	blocker := begin(t, db)
	mustExec(t, blocker, "SELECT * FROM queue_messages WHERE tenant = 'a' AND topic = 't' AND partition_key = 'k' FOR UPDATE")
	stuck := make(chan error, 2)
	go func() {
		_, err := q.Publish(context.WithoutCancel(t.Context()), message("a", "t", "k", 1))
		stuck <- err
	}()
	go func() {
		_, err := q.PublishTx(context.WithoutCancel(t.Context()), begin(t, db), message("a", "t", "k", 1))
		stuck <- err
	}()
	statementsRunning(t, db, "INSERT INTO queue_messages", 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := <-stuck; err == nil {
			t.Error("a publish that was cut off says that it succeeded")
		}
	}
}

func TestPublishersWhoOnlyPublishNeedNoTenants(t *testing.T) {
	q, _ := onDB(t)
	mustPublish(t, q, message("anyone", "t", "k", 1))
}
