package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

// deliver hands a message of the tenant fx to a handler.
func deliver(t *testing.T, h consume.Handler, payload string) error {
	t.Helper()
	return h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Tenant: "fx", Payload: []byte(payload)}, Attempt: 1})
}

// accepted returns a store with the request c@fx.
func accepted(t *testing.T) (*MemoryStore, *recorder) {
	t.Helper()
	published := new(recorder)
	s := NewMemoryStore(published)
	if _, _, err := s.Accept(t.Context(), "fx", "c", out("accepted")); err != nil {
		t.Fatal(err)
	}
	published.take()
	return s, published
}

// Every handler gets every message twice: nothing may happen twice.
func TestARequestTravelsOnce(t *testing.T) {
	s, published := accepted(t)
	runs := filepath.Join(t.TempDir(), "runs")
	cfg := Config{Check: `echo "$QUEUE $CHANGE" >> ` + runs}
	for _, step := range []struct {
		handler   consume.Handler
		payload   string
		published string
		state     State
	}{
		{NewRequestHandler(s), `{"change":"c"}`, "fx/check/c@fx:build/c@fx%3Abuild:check", Checking},
		{NewCheckHandler(cfg, s), `{"change":"c"}`, "fx/merge/fx/c@fx:merge", Merging},
		{NewSignalHandler(s), `{"change":"c","landed":true,"detail":"0123"}`, "", Landed},
	} {
		for range 2 {
			if err := deliver(t, step.handler, step.payload); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(published.take(), " "); got != step.published {
			t.Errorf("published %q, want %q", got, step.published)
		}
		if r, err := s.Get(t.Context(), "fx", "c"); err != nil || r.State != step.state {
			t.Errorf("%+v, %v, want %s", r, err, step.state)
		}
	}
	if got := read(t, runs); got != "fx c\n" {
		t.Errorf("checks that ran: %q", got)
	}
}

func TestAFailedCheckEndsTheRequest(t *testing.T) {
	s, published := accepted(t)
	cfg := Config{Check: "true", Queues: map[string]QueueConfig{"fx": {Check: "echo no tests; exit 1"}}}
	for _, h := range []consume.Handler{NewRequestHandler(s), NewCheckHandler(cfg, s)} {
		if err := deliver(t, h, `{"change":"c"}`); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Get(t.Context(), "fx", "c")
	if err != nil || r.State != CheckFailed || r.History[2].Detail != "no tests\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if got := published.take(); len(got) != 1 {
		t.Errorf("published %q", got)
	}
}

func TestACheckWithoutResultIsTriedAgain(t *testing.T) {
	s, _ := accepted(t)
	if err := deliver(t, NewRequestHandler(s), `{"change":"c"}`); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t, NewCheckHandler(Config{Check: "no-such-program"}, s), `{"change":"c"}`); err == nil {
		t.Error("acked")
	}
	if r, err := s.Get(t.Context(), "fx", "c"); err != nil || r.State != Checking {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestADeadLetterEndsTheRequest(t *testing.T) {
	s, _ := accepted(t)
	delivery := consume.Delivery{Message: backend.Message{Tenant: "fx", Payload: []byte(`{"change":"c"}`)}, Attempt: 1}.
		WithFailure(backend.Failure{OriginalTopic: requestTopic, LastError: "database is away"})
	for _, c := range []struct {
		from State
		want []State
	}{
		{Checking, []State{Accepted}}, // of another stage
		{Accepted, []State{Accepted, DeadLettered}},
	} {
		h := DeadLetters(requestTopic, c.from)(s)
		if got := h.Subscription().Topic; got != "request_dlq" {
			t.Errorf("topic %q", got)
		}
		if err := h.Handle(t.Context(), delivery); err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), "fx", "c")
		if err != nil || !slices.Equal(states(r), c.want) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r, _ := s.Get(t.Context(), "fx", "c"); r.History[1].Detail != "request: database is away" {
		t.Errorf("%+v", r)
	}
}

func TestUnknownRequestsAreRejected(t *testing.T) {
	s := NewMemoryStore(new(recorder))
	for _, h := range []consume.Handler{
		NewRequestHandler(s), NewCheckHandler(Config{Check: "true"}, s), NewSignalHandler(s), DeadLetters(checkTopic, Checking)(s),
	} {
		for _, payload := range []string{`{"change":"c"}`, `{}`, `{"change":1}`, `not JSON`} {
			if err := deliver(t, h, payload); !rejected(err) {
				t.Errorf("%s: %s: %v", h.Subscription().Topic, payload, err)
			}
		}
	}
}

func rejected(err error) bool {
	_, ok := errors.AsType[*consume.RejectError](err)
	return ok
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
