// Package git drives git's own command line. It needs no working tree, so any
// number of processes may use one bare repository.
package git

import (
	"bytes"
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

// ErrNoRef is returned for a ref that does not exist or names no commit.
var ErrNoRef = errors.New("no such commit")

// Repository is the path of a repository, bare or not.
type Repository string

// Resolve returns the commit that a ref names. ErrNoRef if there is none.
func (r Repository) Resolve(ctx context.Context, ref string) (string, error) {
	ids, err := r.resolve(ctx, ref+"^{commit}")
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// Merge is the result of [Repository.Merge].
type Merge struct {
	// Commit holds the change; empty for a conflict.
	Commit string
	// Conflicts are the files in conflict. The target is as it was.
	Conflicts []string
}

// Merge merges the ref change into the ref target. Merging it again changes
// nothing and has the same result, so a caller that crashed before it could
// write the result down simply repeats. If somebody else moves the target
// meanwhile it returns an error and nothing has changed; try again.
// ErrNoRef if either ref does not exist.
func (r Repository) Merge(ctx context.Context, target, change, message string) (Merge, error) {
	ids, err := r.resolve(ctx, target+"^{commit}", target+"^{tree}", change+"^{commit}")
	if err != nil {
		return Merge{}, err
	}
	head, headTree, commit := ids[0], ids[1], ids[2]

	out, code, err := r.run(ctx, "", "merge-tree", "--write-tree", "--name-only", "--no-messages", head, commit)
	if err != nil && code != 1 {
		return Merge{}, err
	}
	tree, files, _ := strings.Cut(out, "\n")
	if code == 1 {
		return Merge{Conflicts: strings.Split(files, "\n")}, nil
	}
	if tree == headTree { // merged already, or a change of nothing
		switch _, code, err := r.run(ctx, "", "merge-base", "--is-ancestor", commit, head); {
		case err == nil:
			return Merge{Commit: head}, nil
		case code != 1:
			return Merge{}, err
		}
	}
	merged, _, err := r.run(ctx, "", "commit-tree", tree, "-p", head, "-p", commit, "-m", message)
	if err != nil {
		return Merge{}, err
	}
	// The old value makes this a compare-and-swap.
	if _, _, err := r.run(ctx, "", "update-ref", "-m", message, target, merged, head); err != nil {
		return Merge{}, err
	}
	return Merge{Commit: merged}, nil
}

// CheckVersion returns an error for a git without merge-tree --write-tree.
func CheckVersion(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		return fmt.Errorf("run git, which must be installed: %w", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "git version %d.%d", &major, &minor); err != nil || major < 2 || major == 2 && minor < 38 {
		return fmt.Errorf("%s is too old: install git 2.38 or newer", strings.TrimSpace(string(out)))
	}
	return nil
}

// resolve reads all revisions with one process.
func (r Repository) resolve(ctx context.Context, revisions ...string) ([]string, error) {
	out, _, err := r.run(ctx, strings.Join(revisions, "\n")+"\n", "cat-file", "--batch-check=%(objectname)")
	if err != nil {
		return nil, err
	}
	ids := strings.Split(out, "\n")
	for i, id := range ids {
		if strings.ContainsRune(id, ' ') { // "<revision> missing"
			name, _, _ := strings.Cut(revisions[i], "^")
			return nil, fmt.Errorf("%w: %s in %s", ErrNoRef, name, r)
		}
	}
	return ids, nil
}

// run returns what git printed, and its exit code.
func (r Repository) run(ctx context.Context, stdin string, args ...string) (string, int, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", string(r)}, args...)...)
	cmd.Env = append(environment(), "LC_ALL=C",
		"GIT_AUTHOR_NAME=runway", "GIT_AUTHOR_EMAIL=runway@localhost", "GIT_COMMITTER_NAME=runway", "GIT_COMMITTER_EMAIL=runway@localhost")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	// A killed git would leave its .lock files behind and block the ref for
	// good; asked to end, it takes them away.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second

	err := cmd.Run()
	out := strings.TrimSuffix(stdout.String(), "\n")
	if err != nil {
		err = fmt.Errorf("git %s in %s: %w: %s", args[0], r, err, strings.TrimSpace(stderr.String()))
	}
	return out, cmd.ProcessState.ExitCode(), err
}

// environment is without what a hook or script that started us says about its
// own repository.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
}
