package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script starts a shell script as a service. It runs in the fleet's folder.
func script(t *testing.T, text string) (*fleet, *service, context.Context) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "script"), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, fail := context.WithCancelCause(t.Context())
	f := &fleet{dir: dir, root: dir, fail: fail, crash: "by a script"}
	s, err := f.add("script", "script", "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.stop() })
	return f, s, ctx
}

// wait returns once a file that a script writes exists.
func wait(t *testing.T, f *fleet, name string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
			return
		}
		if err := pause(t.Context(), 5*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("no file %s", name)
}

const untilTerminated = `trap 'exit 0' TERM; mkdir up 2>/dev/null || mkdir again; while :; do sleep 0.01; done`

func TestAKilledServiceIsStartedAgain(t *testing.T) {
	f, s, ctx := script(t, untilTerminated)
	wait(t, f, "up")
	if err := s.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, f, "again")
	if n := f.killed(); n != 1 {
		t.Errorf("killed %d times", n)
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if err := f.stop(); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
}

func TestAServiceThatEndsByItselfEndsTheDemo(t *testing.T) {
	for text, want := range map[string]string{"exit 3": "exit status 3", "exit 0": "exit status 0"} {
		_, s, ctx := script(t, text)
		<-ctx.Done()
		if err := context.Cause(ctx); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s.log) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStopWantsExitCodeZero(t *testing.T) {
	f, _, _ := script(t, `trap 'exit 4' TERM; mkdir up; while :; do sleep 0.01; done`)
	wait(t, f, "up")
	if err := f.stop(); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("got %v", err)
	}
}

// The demo tells who killed a process: itself, or the check of a change.
func TestAKillHasAReason(t *testing.T) {
	f, s, _ := script(t, `mkdir up 2>/dev/null && kill -9 $$; `+untilTerminated)
	wait(t, f, "again")
	last := func() (int, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.killed, s.why
	}
	if n, why := last(); n != 1 || why != "by a script" {
		t.Errorf("killed %d times, the last %s", n, why)
	}
	if err := s.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, why := last(); ; n, why = last() {
		if n == 1 {
			if err := pause(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if n != 2 || why != "as told" {
			t.Errorf("killed %d times, the last %s", n, why)
		}
		return
	}
}
