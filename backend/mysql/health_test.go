package mysql

import (
	"context"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

func TestHealthWhenTheServerStops(t *testing.T) {
	server := testdb.StartServer(t)
	db := openDB(t, server.Database(t))
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	q := newTestQueue(t, Params{DB: db, Tenants: someTenants(t)})
	sub, err := q.Subscribe(t.Context(), topicA, backend.SubscriptionConfig{Group: groupA})
	if err != nil {
		t.Fatal(err)
	}
	health := func() (backend.Health, backend.SubscriptionHealth) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		h := q.Health(ctx)
		if len(h.Subscriptions) != 1 {
			t.Fatalf("subscriptions: %+v", h.Subscriptions)
		}
		return h, h.Subscriptions[0]
	}
	h, running := health()
	if h.Store != nil || running.Topic != topicA || running.Group != groupA {
		t.Fatalf("%+v", h)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store is found away", func() bool { h, _ := health(); return h.Store != nil })
	_, away := health()
	begun := time.Now()
	eventually(t, "the loop goes on", func() bool { _, now := health(); return now.TickedAt.After(begun) })
	if _, now := health(); !now.PolledAt.Equal(away.PolledAt) {
		t.Errorf("polled at %v, %v after the server was gone", now.PolledAt, now.PolledAt.Sub(away.PolledAt))
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	eventually(t, "it polls again", func() bool { h, now := health(); return h.Store == nil && now.PolledAt.After(back) })
	if err := sub.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Somebody may hold every connection: Health says so in the time it is given.
func TestHealthEndsWithItsContext(t *testing.T) {
	db := migratedDB(t)
	db.SetMaxOpenConns(1)
	q := newTestQueue(t, Params{DB: db})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if h := q.Health(ctx); h.Store == nil {
		t.Error("the store has answered, without a connection to ask on")
	}
}
