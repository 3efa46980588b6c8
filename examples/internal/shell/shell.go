// Package shell runs the commands that operators write into a configuration.
package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// keepOutput bounds what is kept of a command's output: its end says why.
const keepOutput = 4 << 10

// Result of a command that ran to its end.
type Result struct {
	OK     bool   // exit code 0
	Output string // both streams, the last 4 KiB
}

// Run runs a command line with sh, with variables ("NAME=value") added to the
// environment and MQ_* taken out of it: they hold the database's password. When
// ctx ends the command and its children are killed. An error means that there
// is no result: no such command, killed by a signal, ctx ended.
func Run(ctx context.Context, line string, variables ...string) (Result, error) {
	var out tail
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MQ_") }), variables...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child that went to the background may hold the output open

	err := cmd.Run()
	result := Result{OK: err == nil, Output: strings.ToValidUTF8(string(out), "�")}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("%w: stopped the command %q", context.Cause(ctx), line)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		switch code := exit.ExitCode(); code {
		case -1, 126, 127: // by a signal; sh's own: not executable, not found
			return Result{}, fmt.Errorf("%w: the command %q gave no result: %s", err, line, result.Output)
		}
		return result, nil
	}
	return result, err
}

// tail keeps the end of what is written.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if extra := len(*t) - keepOutput; extra > 0 {
		*t = slices.Delete(*t, 0, extra)
	}
	return len(p), nil
}
