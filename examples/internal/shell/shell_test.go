package shell_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/examples/internal/shell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Setenv("MQ_DSN", "secret")
	t.Setenv("OTHER", "other")
	for _, c := range []struct {
		line   string
		ok     bool
		output string
	}{
		{"true", true, ""},
		{"exit 3", false, ""},
		{`echo "$CHANGE"; echo why >&2; exit 1`, false, "a b;$(c)\nwhy\n"},
		{`echo "[$MQ_DSN$OTHER]"`, true, "[other]\n"},
		{`printf '\377'`, true, "�"},
		{"head -c 100000 /dev/zero | tr '\\0' a; echo end", true, strings.Repeat("a", 4<<10-4) + "end\n"},
	} {
		got, err := shell.Run(t.Context(), c.line, "CHANGE=a b;$(c)")
		if err != nil || got.OK != c.ok || got.Output != c.output {
			t.Errorf("%s: got %v, %.60q, %v", c.line, got.OK, got.Output, err)
		}
	}
}

func TestNoResultIsAnError(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"no-such-program", "not found"},
		{"/dev/null", "denied"},
		{"kill -9 $$", "killed"},
	} {
		if got, err := shell.Run(t.Context(), c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v", c.line, got, err)
		}
	}
}

// A shutdown must not wait for a command's children.
func TestCancelKillsTheChildrenToo(t *testing.T) {
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	reader, started := pipe(t)
	go func() {
		<-started
		cancel(cause)
	}()
	_, err := shell.Run(ctx, "sleep 1000 & echo > "+reader+"; wait")
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// pipe returns a named pipe, and a channel that is closed once something has
// been written to it.
func pipe(t *testing.T) (string, <-chan struct{}) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = os.ReadFile(name)
	}()
	return name, written
}
