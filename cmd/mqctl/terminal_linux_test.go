package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tenantmq/tenantmq/backend"
)

// terminal is one that a process runs in, seen from the other side.
type terminal struct {
	*fixture
	cmd    *exec.Cmd
	master *os.File

	mu     sync.Mutex
	grown  *sync.Cond
	screen strings.Builder
	closed bool
}

// inTerminal starts mqctl with all three streams in a terminal.
func (f *fixture) inTerminal(env []string, args ...string) *terminal {
	f.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	f.check(err)
	f.Cleanup(func() { _ = master.Close() })
	var number, unlocked uint32
	f.ioctl(master, syscall.TIOCSPTLCK, &unlocked)
	f.ioctl(master, syscall.TIOCGPTN, &number)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	f.check(err)
	defer slave.Close()

	t := &terminal{fixture: f, cmd: process(f, f.dsn, args...), master: master}
	t.grown = sync.NewCond(&t.mu)
	t.cmd.Env = append(t.cmd.Env, env...)
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	f.check(t.cmd.Start())
	var reading sync.WaitGroup
	reading.Go(t.read)
	f.Cleanup(reading.Wait)
	return t
}

func (f *fixture) ioctl(file *os.File, request uintptr, value *uint32) {
	f.Helper()
	connection, err := file.SyscallConn()
	f.check(err)
	var errno syscall.Errno
	f.check(connection.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(value)))
	}))
	if errno != 0 {
		f.Fatalf("ioctl %#x: %v", request, errno)
	}
}

// read ends when the process has.
func (t *terminal) read() {
	for chunk := make([]byte, 4096); ; {
		n, err := t.master.Read(chunk)
		t.mu.Lock()
		t.screen.Write(chunk[:n])
		t.closed = err != nil
		t.mu.Unlock()
		t.grown.Broadcast()
		if err != nil {
			return
		}
	}
}

// wait waits until something is on the screen.
func (t *terminal) wait(text string) *terminal {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !strings.Contains(t.screen.String(), text) {
		if t.closed {
			t.Fatalf("mqctl has ended, and the screen does not show %q: %q", text, t.screen.String())
		}
		t.grown.Wait()
	}
	return t
}

func (t *terminal) typed(keys string) *terminal {
	t.Helper()
	_, err := io.WriteString(t.master, keys)
	t.check(err)
	return t
}

// end returns what was on the screen.
func (t *terminal) end(code int) string {
	t.Helper()
	_ = t.cmd.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.closed {
		t.grown.Wait()
	}
	if got := t.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("mqctl %q: exit code %d, want %d; the screen is %q", t.cmd.Args[1:], got, code, t.screen.String())
	}
	return t.screen.String()
}

// Only a yes is a yes.
func TestThePersonAskedDecides(t *testing.T) {
	f := newFixture(t)
	f.publish(acme, orders, "k", "a", "b")
	purge := []string{"purge", "--tenant", "acme", "--topic", orders}
	for _, answer := range []string{"no\n", "\n", "yes please\n", "\x04"} {
		f.inTerminal(nil, purge...).wait("2 messages").wait("Go on? (yes/no) ").typed(answer).wait("nothing was changed").end(exitRefused)
		f.equal("messages after "+answer, 2, f.stored(orders))
	}
	asked := f.inTerminal(nil, purge...).wait("(yes/no) ")
	f.check(asked.cmd.Process.Signal(os.Interrupt))
	asked.wait("interrupted; nothing was changed").end(exitRefused)
	f.equal("messages after an interrupt", 2, f.stored(orders))

	screen := f.inTerminal(nil, purge...).wait("(yes/no) ").typed("yes\n").end(exitDone)
	if !strings.Contains(screen, "\r2 messages removed") || !strings.Contains(screen, "purged 2 messages") {
		t.Errorf("the screen is %q", screen)
	}
	f.equal("messages", 0, f.stored(orders))

	f.publish(acme, orders, "k", "c")
	f.inTerminal(nil, purge...).wait(" 1 message, ").wait("(yes/no) ").typed("Y\n").end(exitDone)
	f.equal("messages after a y", 0, f.stored(orders))
}

// Every destructive command asks, and does nothing on a no.
func TestWhatDestroysAsks(t *testing.T) {
	f := newFixture(t)
	f.bury("a")
	f.publish(acme, orders, "k", "m")
	f.exec("INSERT INTO queue_partition_leases VALUES ('acme', ?, ?, 'k', 'gone', 7, 1, 1000, 1000, 0, 0)", billing, orders)
	topic := []string{"--tenant", "acme", "--topic", orders}
	for _, args := range [][]string{
		append([]string{"message", "delete", "--key", "k", "--id", "m"}, topic...),
		append([]string{"group", "drop", "--group", billing}, topic...),
		append([]string{"lease", "release", "--group", billing, "--key", "k"}, topic...),
		append([]string{"lease", "release", "--group", billing, "--stale"}, topic...),
		{"deadletter", "redrive", "--tenant", "acme", "--topic", dead},
	} {
		f.inTerminal(nil, args...).wait("This ").wait("(yes/no) ").typed("no\n").end(exitRefused)
	}
	f.equal("messages", 2, f.stored(orders)+f.stored(dead))
	f.run("leases", "--stale", "--tenant", "acme").want(exitDone, "gone")
	f.run("groups", "--tenant", "acme").want(exitDone, billing)
}

func TestTopRunsUntilQIsPressed(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	f.publish(globex, orders, "k", "a", "b", "c")
	for _, key := range []string{"q", "\x03"} {
		top := f.inTerminal(nil, "top", "--all-tenants", "--interval", "100ms").wait("globex").wait("+0.0").typed(key)
		screen := top.end(exitDone)
		if !strings.HasPrefix(screen, enterScreen) || !strings.HasSuffix(screen, leaveScreen) {
			t.Errorf("the screen is left as %q", screen)
		}
		if globexAt, acmeAt := strings.Index(screen, "globex"), strings.Index(screen, "acme"); globexAt > acmeAt {
			t.Errorf("the largest lag is not first: %q", screen)
		}
	}
}

// A table is as wide as the terminal, unless it should not be, and as its names
// where there is none.
func TestTablesFitTheTerminal(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("long", 20)
	f.publish(acme, long, "k", "m")
	list := []string{"topics", "--tenant", "acme"}
	columns := []string{"COLUMNS=60"}
	for line := range strings.Lines(f.inTerminal(columns, list...).end(exitDone)) {
		if n := text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\r\n")); n > 60 || strings.Contains(line, long) {
			t.Errorf("a line has %d characters: %s", n, line)
		}
	}
	if screen := f.inTerminal(columns, append(list, "--wide")...).end(exitDone); !strings.Contains(screen, long) {
		t.Errorf("cut in spite of --wide: %s", screen)
	}
	cmd := process(t, f.dsn, list...)
	cmd.Env = append(cmd.Env, columns...)
	finish(t, cmd).want(exitDone, long)
}

// Bytes that would disturb a terminal do not get there by mistake.
func TestRawPayloadAsksForATerminal(t *testing.T) {
	f := newFixture(t)
	for id, data := range map[string]string{"text": "harmless\n", "bell": "\a\x1b[31m"} {
		_, err := f.Publish(f.ctx, backend.Message{Tenant: acme, Topic: orders, PartitionKey: "k", ID: id, Payload: []byte(data)})
		f.check(err)
	}
	show := []string{"message", "show", "--raw", "--tenant", "acme", "--topic", orders, "--key", "k", "--id"}
	f.inTerminal(nil, append(show, "text")...).wait("harmless").end(exitDone)
	if screen := f.inTerminal(nil, append(show, "bell")...).wait("--yes").end(exitUsage); strings.Contains(screen, "\a") {
		t.Errorf("the terminal got %q", screen)
	}
	f.inTerminal(nil, append(show, "bell", "--yes")...).wait("\a").end(exitDone)
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	f := newFixture(t)
	const green = "\x1b[32m"
	if screen := f.inTerminal(nil, "doctor", "--tenant", "acme").end(exitDone); !strings.Contains(screen, green) {
		t.Errorf("no colours: %q", screen)
	}
	if screen := f.inTerminal([]string{"NO_COLOR=1"}, "doctor", "--tenant", "acme").end(exitDone); strings.Contains(screen, green) {
		t.Errorf("colours in spite of NO_COLOR: %q", screen)
	}
}

func TestWatchRepeatsUntilInterrupted(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	for _, interval := range [][]string{{"--watch=100ms"}, {"--watch", "100ms"}} {
		cmd := process(t, f.dsn, append([]string{"lag", "--tenant", "acme", "--json"}, interval...)...)
		out, err := cmd.StdoutPipe()
		f.check(err)
		f.check(cmd.Start())
		lines := bufio.NewScanner(out)
		for range 3 {
			if !lines.Scan() {
				t.Fatalf("it has ended: %v", lines.Err())
			}
			r := result{TB: t, args: cmd.Args, stdout: lines.Text()}
			if rows := decode[[]lagRow](r); len(rows) != 1 || rows[0].Group != billing {
				t.Errorf("%+v", rows)
			}
		}
		f.check(cmd.Process.Signal(os.Interrupt))
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("interrupted: %v", err)
		}
	}
}

// An interrupt that comes while the database is asked is no failure either.
func TestWatchIsInterruptedWhileItWaits(t *testing.T) {
	f := newFixture(t)
	f.stop(f.subscribe())
	conn, err := f.db.Conn(f.ctx)
	f.check(err)
	defer conn.Close()
	_, err = conn.ExecContext(f.ctx, "LOCK TABLES queue_offsets WRITE")
	f.check(err)
	cmd := process(t, f.dsn, "lag", "--tenant", "acme", "--watch")
	f.check(cmd.Start())
	for waiting := 0; waiting == 0; {
		f.check(f.db.QueryRowContext(f.ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE '%FROM queue_offsets%' AND id <> CONNECTION_ID()").Scan(&waiting))
	}
	f.check(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	_, err = conn.ExecContext(f.ctx, "UNLOCK TABLES")
	f.check(err)
}
