package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a publisher that remembers the signals, or fails.
type recorder struct {
	signals []landing.Signal
	ids     []string
	err     error
}

func (r *recorder) Publish(_ context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	if r.err != nil {
		return nil, r.err
	}
	for _, m := range msgs {
		var s landing.Signal
		if err := json.Unmarshal(m.Payload, &s); err != nil {
			return nil, err
		}
		r.signals = append(r.signals, s)
		r.ids = append(r.ids, string(tenant)+"/"+topic+"/"+m.PartitionKey+"/"+m.ID)
	}
	return make([]backend.Receipt, len(msgs)), nil
}

func (r *recorder) PublishTx(context.Context, *sql.Tx, tenants.ID, string, ...publish.Message) ([]backend.Receipt, error) {
	return nil, errors.ErrUnsupported
}

// fixture is a handler over a repository with changes a and b of the queue fx,
// which are in conflict.
func fixture(t *testing.T) (consume.Handler, *recorder, git.Repository) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fx.git")
	err := git.Create(t.Context(), path, []git.Commit{
		{Ref: "refs/heads/fx", Files: "VERSION", Content: "0"},
		{Ref: "refs/changes/fx/a", From: "refs/heads/fx", Files: "VERSION", Content: "a"},
		{Ref: "refs/changes/fx/b", From: "refs/heads/fx", Files: "VERSION", Content: "b"},
		{Ref: "refs/changes/river/c", From: "refs/heads/fx", Files: "c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Repository: filepath.Join(filepath.Dir(path), "{queue}.git"), Target: "refs/heads/{queue}", Change: "refs/changes/{queue}/{change}"}
	published := new(recorder)
	return NewMergeHandler(cfg, published), published, git.Repository(path)
}

func merge(t *testing.T, h consume.Handler, payload string) error {
	t.Helper()
	return h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Tenant: "fx", Payload: []byte(payload)}, Attempt: 1})
}

func TestLandedAndConflictAreSignalled(t *testing.T) {
	h, published, repository := fixture(t)
	for _, change := range []string{"a", "b", "a", "b"} { // the second time is a repetition
		if err := merge(t, h, `{"request":"`+change+`@fx","change":"`+change+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	head, err := repository.Resolve(t.Context(), "refs/heads/fx")
	if err != nil {
		t.Fatal(err)
	}
	landed, conflict := landing.Signal{Change: "a", Landed: true, Detail: head}, landing.Signal{Change: "b", Detail: "conflict in VERSION"}
	for i, want := range []landing.Signal{landed, conflict, landed, conflict} {
		if got := published.signals[i]; got != want {
			t.Errorf("signal %d is %+v, want %+v", i, got, want)
		}
	}
	if got, want := strings.Join(published.ids[1:3], " "), "fx/merge_signal/b/b@fx:merged fx/merge_signal/a/a@fx:merged"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
}

// A crash before the signal is stored: the change is merged already.
func TestAMergeWithoutItsSignalIsRepeated(t *testing.T) {
	h, published, repository := fixture(t)
	published.err = errors.New("queue is away")
	if err := merge(t, h, `{"request":"a@fx","change":"a"}`); !errors.Is(err, published.err) {
		t.Fatalf("got %v", err)
	}
	head, err := repository.Resolve(t.Context(), "refs/heads/fx")
	if err != nil {
		t.Fatal(err)
	}
	published.err = nil
	if err := merge(t, h, `{"request":"a@fx","change":"a"}`); err != nil {
		t.Fatal(err)
	}
	if want := (landing.Signal{Change: "a", Landed: true, Detail: head}); len(published.signals) != 1 || published.signals[0] != want {
		t.Errorf("signals %+v, want %+v", published.signals, want)
	}
}

func TestWhatCannotBeMergedIsRejected(t *testing.T) {
	h, published, _ := fixture(t)
	for payload, want := range map[string]string{
		`{"request":"x@fx","change":"x"}`:          "no such commit: refs/changes/fx/x",
		`{"request":"c@fx","change":"../river/c"}`: "want a branch's name",
		`{"request":"c@fx"}`:                       "want a branch's name",
		`{"change":["a"]}`:                         "decode payload",
		`a`:                                        "decode payload",
	} {
		err := merge(t, h, payload)
		if _, ok := errors.AsType[*consume.RejectError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", payload, err, want)
		}
	}
	if len(published.signals) != 0 {
		t.Errorf("signals %+v", published.signals)
	}
}
