package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/examples/internal/database"
	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/internal/testdb"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// recorder is a publisher that keeps the messages, or fails.
type recorder struct {
	mu   sync.Mutex
	sent []backend.Message
	err  error
}

func (r *recorder) Publish(_ context.Context, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	for _, m := range msgs {
		r.sent = append(r.sent, backend.Message{
			Tenant: tenant, Topic: topic, PartitionKey: m.PartitionKey, ID: m.ID, Payload: m.Payload, Offset: uint64(len(r.sent) + 1),
		})
	}
	return make([]backend.Receipt, len(msgs)), nil
}

func (r *recorder) PublishTx(ctx context.Context, _ *sql.Tx, tenant tenants.ID, topic string, msgs ...publish.Message) ([]backend.Receipt, error) {
	return r.Publish(ctx, tenant, topic, msgs...)
}

// fixture is what a process has, without the queue.
type fixture struct {
	API
	published  *recorder
	repository string
	runs       string // file with a line for each validation
}

// each runs a test on both stores. A commit whose tree has a file BROKEN is
// broken.
func each(t *testing.T, test func(t *testing.T, s fixture)) {
	run := func(t *testing.T, published *recorder, store Store) {
		dir := t.TempDir()
		s := fixture{published: published, repository: filepath.Join(dir, "repository.git"), runs: filepath.Join(dir, "runs")}
		set, err := tenants.New("fx", "river")
		if err != nil {
			t.Fatal(err)
		}
		s.API = API{Tenants: set, Store: store, Config: Config{Source: Source{
			Repository: s.repository, Target: "refs/heads/{queue}",
			Command: `echo $COMMIT >> ` + s.runs + `; if git -C "$REPOSITORY" cat-file -e "$COMMIT:BROKEN"; then echo $QUEUE is broken; exit 1; fi 2>/dev/null`,
		}}}
		test(t, s)
	}
	t.Run("memory", func(t *testing.T) {
		published := new(recorder)
		run(t, published, NewMemoryStore(published))
	})
	t.Run("mysql", func(t *testing.T) {
		db, err := sql.Open("mysql", testdb.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		published := new(recorder)
		s := NewMySQLStore(db, published)
		if err := database.Migrate(t.Context(), db, "stovepipe", versions); err != nil {
			t.Fatal(err)
		}
		run(t, published, s)
	})
}

// commit adds commits and returns the last one.
func (s fixture) commit(t *testing.T, commits ...git.Commit) string {
	t.Helper()
	if err := git.Create(t.Context(), s.repository, commits); err != nil {
		t.Fatal(err)
	}
	id, err := git.Repository(s.repository).Resolve(t.Context(), commits[len(commits)-1].Ref)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (s fixture) call(method, path, body string) (int, string) {
	w := httptest.NewRecorder()
	s.Routes(zap.NewNop()).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func (s fixture) ingest(t *testing.T, status int, state State) {
	t.Helper()
	got, body := s.call("POST", "/ingest", `{"queue": "fx"}`)
	var h Head
	if err := json.Unmarshal([]byte(body), &h); err != nil || got != status || h.State != state || h.Queue != "fx" {
		t.Fatalf("ingest: %d %s %v, want %d %s", got, body, err, status, state)
	}
}

// validate delivers the n-th message, from 0.
func (s fixture) validate(t *testing.T, n int) {
	t.Helper()
	if err := NewValidateHandler(s.Config, s.Store).Handle(t.Context(), consume.Delivery{Message: s.published.sent[n], Attempt: 1}); err != nil {
		t.Fatal(err)
	}
}

func (s fixture) wantGreen(t *testing.T, commit string) {
	t.Helper()
	if status, body := s.call("GET", "/queues/fx", ""); status != 200 || body != `{"last_green":"`+commit+`","queue":"fx"}` {
		t.Errorf("%d %s, want %q", status, body, commit)
	}
}

func TestAHeadIsValidatedOnce(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		head := s.commit(t, git.Commit{Ref: "refs/heads/fx", Files: "a"})
		s.wantGreen(t, "")
		s.ingest(t, 202, Pending)
		s.ingest(t, 200, Pending)
		s.validate(t, 0)
		s.validate(t, 0) // delivered again
		s.ingest(t, 200, Green)
		s.wantGreen(t, head)
		if runs, err := os.ReadFile(s.runs); err != nil || string(runs) != head+"\n" {
			t.Errorf("validated %q, %v", runs, err)
		}
		if m := s.published.sent; len(m) != 1 || m[0].Tenant != "fx" || m[0].Topic != validateTopic || m[0].PartitionKey != "fx" || m[0].ID != head+":ingested" {
			t.Errorf("published %+v", m)
		}
	})
}

// A broken head leaves the last green one in place, and an older head that is
// decided later does not replace a newer one.
func TestLastGreenFollowsIngestion(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		first := s.commit(t, git.Commit{Ref: "refs/heads/fx", Files: "a"})
		s.ingest(t, 202, Pending)
		second := s.commit(t, git.Commit{Ref: "refs/heads/fx", From: "refs/heads/fx^0", Files: "b"})
		s.ingest(t, 202, Pending)
		s.commit(t, git.Commit{Ref: "refs/heads/fx", From: "refs/heads/fx^0", Files: "c BROKEN"})
		s.ingest(t, 202, Pending)

		s.validate(t, 2)
		s.wantGreen(t, "")
		if _, body := s.call("POST", "/ingest", `{"queue": "fx"}`); !strings.Contains(body, "fx is broken") {
			t.Errorf("no reason: %s", body)
		}
		s.validate(t, 1)
		s.wantGreen(t, second)
		s.validate(t, 0)
		s.wantGreen(t, second)
		if h, err := s.Store.Get(t.Context(), "fx", first); err != nil || h.State != Green {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

func TestAValidationGivenUpIsBroken(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		s.commit(t, git.Commit{Ref: "refs/heads/fx", Files: "a"})
		s.ingest(t, 202, Pending)
		h := NewDeadLetterHandler(s.Store)
		if got := h.Subscription().Topic; got != "validate_dlq" {
			t.Errorf("topic %q", got)
		}
		d := consume.Delivery{Message: s.published.sent[0], Attempt: 1}.WithFailure(backend.Failure{OriginalOffset: 1, LastError: "no such program"})
		if err := h.Handle(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		s.ingest(t, 200, Broken)
		if _, body := s.call("POST", "/ingest", `{"queue": "fx"}`); !strings.Contains(body, "not validated: no such program") {
			t.Errorf("no reason: %s", body)
		}
	})
}

func TestAHeadWithoutItsMessageIsNotStored(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		head := s.commit(t, git.Commit{Ref: "refs/heads/fx", Files: "a"})
		s.published.err = errors.New("queue is away")
		if status, body := s.call("POST", "/ingest", `{"queue": "fx"}`); status != 500 || strings.Contains(body, "away") {
			t.Errorf("%d %s", status, body)
		}
		if _, err := s.Store.Get(t.Context(), "fx", head); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("stored: %v", err)
		}
		s.published.err = nil
		s.ingest(t, 202, Pending)
	})
}

func TestBadRequestsStoreNothing(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		s.commit(t, git.Commit{Ref: "refs/heads/fx", Files: "a"})
		for _, c := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"POST", "/ingest", `{"queue": "nobody"}`, 404, `unknown tenant \"nobody\": MQ_TENANTS lists`},
			{"POST", "/ingest", `{"queue": "river"}`, 404, "no such commit: refs/heads/river"},
			{"POST", "/ingest", `{}`, 400, "queue: must not be empty"},
			{"POST", "/ingest", `{"queue": "fx"`, 400, "want one JSON object"},
			{"POST", "/ingest", `{"queue": "fx", "head": "abc"}`, 400, "head"},
			{"POST", "/ingest", `{"queue": "` + strings.Repeat("x", 70000) + `"}`, 413, "at most 65536 bytes"},
			{"GET", "/queues/nobody", "", 404, "MQ_TENANTS"},
			{"GET", "/ingest", "", 405, ""},
		} {
			if status, body := s.call(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, status, body)
			}
		}
		if len(s.published.sent) != 0 {
			t.Errorf("published %+v", s.published.sent)
		}
	})
}

func TestMessagesThatNoAttemptCanHandle(t *testing.T) {
	each(t, func(t *testing.T, s fixture) {
		for _, payload := range []string{`{"commit":"0123"}`, `{}`, `x`} {
			err := NewValidateHandler(s.Config, s.Store).Handle(t.Context(), consume.Delivery{Message: backend.Message{Tenant: "fx", Payload: []byte(payload)}})
			if _, ok := errors.AsType[*consume.RejectError](err); !ok {
				t.Errorf("%s: %v", payload, err)
			}
		}
	})
}

func TestQueuesOverrideTheSource(t *testing.T) {
	c := Config{Source: Source{Repository: "/srv/{queue}.git", Target: "main", Command: "make"}, Queues: map[string]Source{"fx": {Command: "go test"}}}
	if got, want := c.SourceOf("fx"), (Source{Repository: "/srv/fx.git", Target: "main", Command: "go test"}); got != want {
		t.Errorf("got %+v", got)
	}
	if got := c.SourceOf("river"); got.Command != "make" || got.Repository != "/srv/river.git" {
		t.Errorf("got %+v", got)
	}
}
