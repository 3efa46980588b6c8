package publish_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a backend's writing half that keeps what it is given.
type recorder struct {
	calls [][]backend.Message
	txs   []*sql.Tx
	err   error
}

func (r *recorder) Publish(ctx context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	return r.PublishTx(ctx, nil, msgs...)
}

func (r *recorder) PublishTx(_ context.Context, tx *sql.Tx, msgs ...backend.Message) ([]backend.Receipt, error) {
	r.calls = append(r.calls, msgs)
	r.txs = append(r.txs, tx)
	return make([]backend.Receipt, len(msgs)), r.err
}

// each runs a test through both ways to publish.
func each(t *testing.T, test func(t *testing.T, r *recorder, publish func(p publish.Publisher, tenant tenants.ID, msgs ...publish.Message) ([]backend.Receipt, error))) {
	t.Helper()
	t.Run("Publish", func(t *testing.T) {
		test(t, &recorder{}, func(p publish.Publisher, tenant tenants.ID, msgs ...publish.Message) ([]backend.Receipt, error) {
			return p.Publish(t.Context(), tenant, "merge", msgs...)
		})
	})
	t.Run("PublishTx", func(t *testing.T) {
		r, tx := &recorder{}, &sql.Tx{}
		test(t, r, func(p publish.Publisher, tenant tenants.ID, msgs ...publish.Message) ([]backend.Receipt, error) {
			return p.PublishTx(t.Context(), tx, tenant, "merge", msgs...)
		})
		for _, got := range r.txs {
			if got != tx {
				t.Errorf("published in transaction %p, not in the caller's", got)
			}
		}
	})
}

func TestPublishStampsTenantTopicAndQueueName(t *testing.T) {
	each(t, func(t *testing.T, r *recorder, pub func(publish.Publisher, tenants.ID, ...publish.Message) ([]backend.Receipt, error)) {
		receipts, err := pub(publish.New(r), "docs",
			publish.Message{ID: "1", PartitionKey: "k", Payload: []byte("p")},
			publish.Message{ID: "2", PartitionKey: "k", Metadata: map[string]string{"trace": "x", "queue_name": "docs"}},
		)
		if err != nil || len(receipts) != 2 {
			t.Fatalf("got %d receipts, error %v", len(receipts), err)
		}
		want := [][]backend.Message{{
			{Tenant: "docs", Topic: "merge", ID: "1", PartitionKey: "k", Payload: []byte("p"), Metadata: map[string]string{"queue_name": "docs"}},
			{Tenant: "docs", Topic: "merge", ID: "2", PartitionKey: "k", Metadata: map[string]string{"trace": "x", "queue_name": "docs"}},
		}}
		if diff := cmp.Diff(want, r.calls); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
	})
}

func TestPublishRefusesBeforeTouchingTheQueue(t *testing.T) {
	set, err := tenants.New("docs", "ios")
	if err != nil {
		t.Fatal(err)
	}
	fine := publish.Message{ID: "1", PartitionKey: "k"}
	each(t, func(t *testing.T, r *recorder, pub func(publish.Publisher, tenants.ID, ...publish.Message) ([]backend.Receipt, error)) {
		for _, c := range []struct {
			name   string
			tenant tenants.ID
			msgs   []publish.Message
			is     error
			names  []string
		}{
			{"empty tenant", "", []publish.Message{fine}, backend.ErrInvalid, []string{"tenant", "empty"}},
			{"empty tenant, no messages", "", nil, backend.ErrInvalid, []string{"tenant", "empty"}},
			{"invalid tenant", "docs ", []publish.Message{fine}, backend.ErrInvalid, []string{`"docs "`, "space"}},
			{"unknown tenant", "dosc", []publish.Message{fine}, tenants.ErrUnknownTenant, []string{`"dosc"`, `"docs", "ios"`}},
			{
				"conflicting metadata", "docs",
				[]publish.Message{fine, {ID: "2", PartitionKey: "k", Metadata: map[string]string{"queue_name": "ios"}}},
				backend.ErrInvalid,
				[]string{"message 2 of 2", `"queue_name"`, `"ios"`, `"docs"`, "leave the key out"},
			},
			{
				"empty metadata", "docs",
				[]publish.Message{{ID: "2", PartitionKey: "k", Metadata: map[string]string{"queue_name": ""}}},
				backend.ErrInvalid,
				[]string{"message 1 of 1", `"queue_name"`},
			},
			{
				"long conflicting metadata", "docs",
				[]publish.Message{{ID: "2", PartitionKey: "k", Metadata: map[string]string{"queue_name": strings.Repeat("x", 1<<20)}}},
				backend.ErrInvalid,
				[]string{"xxx"},
			},
		} {
			receipts, err := pub(publish.New(r, publish.WithTenants(set)), c.tenant, c.msgs...)
			if !errors.Is(err, c.is) || receipts != nil {
				t.Errorf("%s: got receipts %v, error %v", c.name, receipts, err)
				continue
			}
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%s: error %q does not name %q", c.name, err, name)
				}
			}
			if len(err.Error()) > 300 {
				t.Errorf("%s: error of %d bytes", c.name, len(err.Error()))
			}
		}
		if len(r.calls) != 0 {
			t.Errorf("the queue was touched: %v", r.calls)
		}
	})
}

func TestPublishNothing(t *testing.T) {
	each(t, func(t *testing.T, r *recorder, pub func(publish.Publisher, tenants.ID, ...publish.Message) ([]backend.Receipt, error)) {
		receipts, err := pub(publish.New(r), "docs")
		if receipts != nil || err != nil || len(r.calls) != 0 {
			t.Errorf("got receipts %v, error %v, %d calls", receipts, err, len(r.calls))
		}
	})
}

func TestPublishLeavesCallersMetadataAlone(t *testing.T) {
	each(t, func(t *testing.T, r *recorder, pub func(publish.Publisher, tenants.ID, ...publish.Message) ([]backend.Receipt, error)) {
		given := map[string]string{"trace": "x"}
		before := maps.Clone(given)
		m := publish.Message{ID: "1", PartitionKey: "k", Metadata: given}
		// The same map for two messages, and for another tenant afterwards.
		for _, tenant := range []tenants.ID{"docs", "ios"} {
			if _, err := pub(publish.New(r), tenant, m, m); err != nil {
				t.Fatal(err)
			}
		}
		if !maps.Equal(given, before) {
			t.Errorf("the caller's metadata became %v", given)
		}
		r.calls[0][0].Metadata["trace"] = "y"
		if given["trace"] != "x" || r.calls[0][1].Metadata["trace"] != "x" {
			t.Error("the messages share the caller's map")
		}
	})
}

func TestPublishReturnsTheBackendsError(t *testing.T) {
	each(t, func(t *testing.T, r *recorder, pub func(publish.Publisher, tenants.ID, ...publish.Message) ([]backend.Receipt, error)) {
		r.err = backend.ErrNotSupported
		if _, err := pub(publish.New(r), "docs", publish.Message{}); !errors.Is(err, backend.ErrNotSupported) {
			t.Errorf("got error %v", err)
		}
	})
}

// Source compatibility: New takes a whole queue.
var _ = func(q backend.Queue) publish.Publisher { return publish.New(q) }
