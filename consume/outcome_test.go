package consume_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

var errBroken = errors.New("build is broken")

// panicky is an error that cannot be asked for its text.
type panicky struct{ text string }

func (p *panicky) Error() string { return p.text }

func TestHandlerResultDecidesTheOutcome(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func() error
		verb   string
		delay  time.Duration
		is     error
		says   string
	}{
		{"nil", func() error { return nil }, "ack", 0, nil, ""},
		{"error", func() error { return errBroken }, "nack", 0, errBroken, "build is broken"},
		{"postpone", func() error { return consume.Postpone(time.Minute) }, "postpone", time.Minute, nil, ""},
		{"postpone wrapped", func() error { return fmt.Errorf("no slot: %w", consume.Postpone(time.Second)) }, "postpone", time.Second, nil, ""},
		{"postpone by nothing", func() error { return consume.Postpone(0) }, "nack", 0, backend.ErrInvalid, "postpone: delay 0s"},
		{"postpone for ever", func() error { return consume.Postpone(1 << 62) }, "nack", 0, backend.ErrInvalid, "want 1ms to"},
		{"reject", func() error { return consume.Reject(errBroken) }, "reject", 0, errBroken, "build is broken"},
		{"reject wrapped", func() error { return fmt.Errorf("change 4: %w", consume.Reject(errBroken)) }, "reject", 0, errBroken, "change 4: build is broken"},
		{"reject nil", func() error { return consume.Reject(nil) }, "reject", 0, nil, "without a cause"},
		{"reject wins", func() error { return errors.Join(consume.Postpone(time.Second), consume.Reject(errBroken)) }, "reject", 0, errBroken, ""},
		{"panic", func() error { panic("lost my mind") }, "nack", 0, nil, "panic: lost my mind\n\n"},
		{"panic with an error", func() error { panic(errBroken) }, "nack", 0, errBroken, "panic: build is broken"},
		{"panic with nil", func() error { panic(nil) }, "nack", 0, nil, "panic called with nil"},
		{"panic with postpone", func() error { panic(fmt.Errorf("must: %w", consume.Postpone(time.Second))) }, "nack", 0, nil, "panic: must"},
		{"panic with reject", func() error { panic(consume.Reject(errBroken)) }, "nack", 0, errBroken, "panic: build is broken"},
		{"error that panics", func() error { return (*panicky)(nil) }, "nack", 0, nil, "nil pointer dereference"},
		{"Goexit", func() error { runtime.Goexit(); return nil }, "nack", 0, nil, "runtime.Goexit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, middleware := range [][]consume.Middleware{nil, {consume.Recover()}} { // which change nothing
				s := &script{}
				start(t, s, consume.Params{Middleware: middleware, Handlers: handlers(consume.Func(onMerge,
					func(context.Context, consume.Delivery) error { return c.handle() }))})
				d := s.deliver("merge", backend.Message{Tenant: "docs"})
				got := await(t, "an outcome", d.settled)
				if got.verb != c.verb || got.delay != c.delay {
					t.Fatalf("got %s %v (cause %v), want %s %v", got.verb, got.delay, got.cause, c.verb, c.delay)
				}
				if c.is != nil && !errors.Is(got.cause, c.is) {
					t.Errorf("cause %v does not wrap %v", got.cause, c.is)
				}
				if got.cause != nil && !strings.Contains(got.cause.Error(), c.says) {
					t.Errorf("cause %q does not say %q", got.cause, c.says)
				}
			}
		})
	}
}

//go:noinline
func deepInTheHandler(m map[string]int) { m["x"] = 1 }

func TestPanicStackStartsAtThePanicAndEndsAtTheHandler(t *testing.T) {
	s := &script{}
	start(t, s, consume.Params{Handlers: handlers(consume.Func(onMerge, func(context.Context, consume.Delivery) error {
		defer func() { _ = 0 }() // a deferred call of the handler's runs above the panic
		deepInTheHandler(nil)
		return nil
	}))})
	cause := await(t, "an outcome", s.deliver("merge", backend.Message{Tenant: "docs"}).settled).cause
	p, ok := errors.AsType[*consume.PanicError](cause)
	if !ok {
		t.Fatalf("got cause %v, want a PanicError", cause)
	}
	if _, ok := p.Value.(runtime.Error); !ok {
		t.Errorf("got value %v", p.Value)
	}
	first, _, _ := strings.Cut(p.Stack, "\n")
	if !strings.HasSuffix(first, ".deepInTheHandler") {
		t.Errorf("the stack starts at %s:\n%s", first, p.Stack)
	}
	for _, foreign := range []string{"runtime.", "(*consumer)", "WaitGroup"} {
		if strings.Contains(p.Stack, foreign) {
			t.Errorf("the stack shows %s:\n%s", foreign, p.Stack)
		}
	}
	if !strings.Contains(p.Stack, "outcome_test.go:") {
		t.Errorf("the stack names no line:\n%s", p.Stack)
	}
}

func TestJSONDecodesOrRejects(t *testing.T) {
	type request struct {
		Change string `json:"change"`
		Size   int    `json:"size"`
	}
	for _, c := range []struct {
		payload string
		want    string // decoded, "" for rejected
		says    string
	}{
		{`{"change":"c1","size":2}`, "{c1 2}", ""},
		{` {"change":"c1","added_later":[1]} `, "{c1 0}", ""},
		{`{"change":"c1"} {"change":"c2"}`, "", "after top-level value"},
		{`{"change":"c1"}x`, "", "after top-level value"},
		{``, "", "0 bytes"},
		{`{"change":7}`, "", "change"},
		{`{"change":"c1"`, "", "unexpected end"},
		{"\x00\xff", "", "invalid character"},
	} {
		var got string
		h := consume.JSON(onMerge, func(_ context.Context, r request, d consume.Delivery) error {
			got = fmt.Sprint(r)
			if string(d.Payload) != c.payload {
				t.Errorf("%q: the delivery's payload is %q", c.payload, d.Payload)
			}
			return errBroken
		})
		err := h.Handle(t.Context(), consume.Delivery{Message: backend.Message{Payload: []byte(c.payload)}})
		if got != c.want {
			t.Errorf("%q: decoded %q, want %q", c.payload, got, c.want)
		}
		if _, rejected := errors.AsType[*consume.RejectError](err); rejected != (c.want == "") {
			t.Errorf("%q: got error %v", c.payload, err)
		} else if rejected {
			for _, says := range []string{c.says, "consume_test.request", fmt.Sprintf("%d bytes", len(c.payload))} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q: error %q does not say %q", c.payload, err, says)
				}
			}
		} else if !errors.Is(err, errBroken) {
			t.Errorf("%q: got error %v, want the function's", c.payload, err)
		}
	}
}

func TestDeliveryMadeByHand(t *testing.T) {
	d := consume.Delivery{Attempt: 1}
	if err := d.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("Extend: %v", err)
	}
	if err := d.Extend(t.Context(), 0); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("Extend by nothing: got error %v", err)
	}
	if f, ok := d.Failure(); ok {
		t.Errorf("got failure %v", f)
	}
	want := backend.Failure{OriginalTopic: "merge", Attempts: 10}
	if f, ok := d.WithFailure(want).Failure(); !ok || f != want {
		t.Errorf("got failure %v, %v, want %v", f, ok, want)
	}
	if _, ok := d.Failure(); ok {
		t.Error("WithFailure changed the delivery it was called on")
	}
}
