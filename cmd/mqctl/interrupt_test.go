package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/tenantmq/tenantmq/mqfx"
)

// What Ctrl-C ends says so first, and how far it got.
func TestInterruptedCommandTellsWhatIsDone(t *testing.T) {
	f := newFixture(t)
	f.bury("a", "b")
	cmd := process(t, f.dsn, "deadletter", "redrive", "--yes", "--tenant", "acme", "--topic", dead, "--rate", "0.001")
	wait := begin(t, cmd)
	for f.stored(dead) != 1 { // the second would be redriven in a quarter of an hour
		f.check(f.ctx.Err())
	}
	f.check(cmd.Process.Signal(os.Interrupt))
	r := wait().want(exitFailed, "mqctl: interrupted; what was done stays done: redrive the dead letters", "1 are redriven and stay so\n")
	f.equal("dead letters left", 1, f.stored(dead))
	if r.stdout != "" {
		t.Errorf("standard output: %s", r.stdout)
	}
}

func TestInterruptionIsToldInWords(t *testing.T) {
	const stays = "interrupted; what was done stays done"
	for want, err := range map[string]error{
		stays:                        context.Canceled,
		stays + ": purge; 5 removed": fmt.Errorf("purge; 5 removed: %w", context.Canceled),
		stays + ": list: no answer":  fmt.Errorf("list: %w", errors.New("no answer")),
		stays + ": redrive":          errors.New("redrive: interrupt signal received"),
	} {
		if got := interrupted(err); got.Error() != want || exitCode(got) != exitFailed {
			t.Errorf("%v: %v, exit code %d", err, got, exitCode(got))
		}
	}
}

// Somebody who types lines to be published can end it.
func TestReadingLinesEndsWithTheContext(t *testing.T) {
	in, keyboard := io.Pipe()
	t.Cleanup(func() { _ = keyboard.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if lines, err := readLines(ctx, in, &target{tenant: "acme", topic: orders}, mqfx.DefaultConfig().Publish); !errors.Is(err, context.Canceled) || lines != nil {
		t.Errorf("%v, %v", lines, err)
	}
}
