package vitesstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// directory is a private directory, and a watchdog that kills the processes in it and removes it with this process.
type directory struct {
	path       string
	credential *syscall.Credential // nil: this process's own
	watchdog   *exec.Cmd
	lifeline   interface{ Close() error }
}

// newDirectory makes a directory for programs that refuse to run as root.
func newDirectory() (_ *directory, err error) {
	path, err := os.MkdirTemp("", "tenantmq-vitess-")
	if err != nil {
		return nil, err
	}
	d := &directory{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove())
		}
	}()
	if os.Geteuid() == 0 {
		if d.credential, err = nobody(); err != nil {
			return nil, err
		}
		// Others pass through to what is theirs.
		if err := os.Chmod(path, 0o711); err != nil { //nolint:gosec // see above
			return nil, err
		}
		if err := passable(path); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(d.pids(), 0o700); err != nil {
		return nil, err
	}
	// The shell's input ends with this process, however that ends.
	const script = `cat >/dev/null
for pid in "$1"/pids/*; do [ ! -s "$pid" ] || kill -9 "$(cat "$pid")"; done
rm -rf "$1"`
	d.watchdog = exec.Command("/bin/sh", "-c", script, "watchdog", path)
	d.watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.lifeline, err = d.watchdog.StdinPipe(); err != nil {
		return nil, err
	}
	if err := d.watchdog.Start(); err != nil {
		d.watchdog = nil
		return nil, fmt.Errorf("start the watchdog of a Vitess cluster: %w", err)
	}
	return d, nil
}

func (d *directory) pids() string { return filepath.Join(d.path, "pids") }

// remove has the watchdog do its work.
func (d *directory) remove() error {
	if d.watchdog == nil {
		return os.RemoveAll(d.path)
	}
	if d.watchdog.ProcessState != nil {
		return nil
	}
	return errors.Join(d.lifeline.Close(), d.watchdog.Wait())
}

// nobody is the ordinary user that every system has.
func nobody() (*syscall.Credential, error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("find a user for Vitess, which refuses root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user nobody: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user nobody: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// passable returns an error unless every user may pass through the directories to path.
func passable(path string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("directory %s has mode %#o: Vitess refuses root, and the user nobody cannot pass to %s; chmod o+x %s, or have TMPDIR and the checkout elsewhere",
				dir, info.Mode().Perm(), path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// command runs as the ordinary user, with an environment in which Vitess finds nothing of this machine's.
func (d *directory) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.path, "VTDATAROOT=" + d.path, "TMPDIR=" + os.TempDir()}
	cmd.Dir = d.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: d.credential}
	return cmd
}

// A Process is one program of a cluster. It is safe for concurrent use.
type Process struct {
	name, path string
	args       []string
	dir        *directory
	health     string // a URL that answers 200 once the process works

	mu  sync.Mutex
	run *run // nil while it does not run
}

// run is one run of a process.
type run struct {
	*exec.Cmd
	exited  chan struct{} // closed once the process is gone and reaped
	logFrom int64         // where its log begins
}

// process describes a program with a working directory of its own; it has to be told its arguments and started.
func (d *directory) process(name, path string) (*Process, error) {
	if d.credential != nil {
		if err := passable(path); err != nil {
			return nil, err
		}
	}
	p := &Process{name: name, path: path, dir: d}
	if err := os.Mkdir(p.home(), 0o700); err != nil {
		return nil, err
	}
	if d.credential != nil {
		if err := os.Chown(p.home(), int(d.credential.Uid), int(d.credential.Gid)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Process) home() string    { return filepath.Join(p.dir.path, p.name) }
func (p *Process) log() string     { return filepath.Join(p.dir.path, p.name+".log") }
func (p *Process) pidFile() string { return filepath.Join(p.dir.pids(), p.name) }

// Start starts the process, killing it first if it still runs, and returns once it works.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.kill(); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := p.dir.command(context.WithoutCancel(ctx), p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.home(), log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.path, err)
	}
	p.run = &run{Cmd: cmd, exited: make(chan struct{}), logFrom: from}
	go func(r *run) {
		_ = r.Wait() // how it ended is in the log
		close(r.exited)
	}(p.run)
	if err := os.WriteFile(p.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return errors.Join(err, p.kill())
	}
	if err := p.awaitHealth(ctx); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// Kill ends the process by SIGKILL and returns once it is gone. Killing one that does not run does nothing.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill()
}

func (p *Process) kill() error {
	if p.run == nil {
		return nil
	}
	if err := p.run.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.run.exited
	p.run = nil
	return os.RemoveAll(p.pidFile()) // before the number can belong to another process
}

// awaitHealth waits until the process works, has exited, or ctx ends. The caller owns p.
func (p *Process) awaitHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := healthy(ctx, p.health)
		if err == nil {
			return nil
		}
		select {
		case <-p.run.exited:
			log := p.sinceStart()
			err := fmt.Errorf("start %s: %s: it ended at once: %s\n%s", p.name, causeIn(log), p.run.ProcessState, tail(log))
			if takenIn(log) {
				err = fmt.Errorf("%w: %w", errPortTaken, err)
			}
			return err
		case <-ctx.Done():
			log := p.sinceStart()
			return fmt.Errorf("start %s: %s: %w, last %w\n%s", p.name, causeIn(log), ctx.Err(), err, tail(log))
		case <-tick.C:
		}
	}
}

func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true // no goroutine stays behind
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// sinceStart is what the process has logged in this run. The caller owns p.
func (p *Process) sinceStart() []byte {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return []byte(err.Error())
	}
	return text[min(p.run.logFrom, int64(len(text))):]
}

// tail returns the last lines of a log.
func tail(log []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}
