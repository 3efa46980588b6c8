package git_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenantmq/tenantmq/examples/internal/git"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const target = "refs/heads/main"

func TestMergeLandsAChange(t *testing.T) {
	path := create(t, git.Commit{Ref: target, Files: "base"}, git.Commit{Ref: "refs/heads/a", From: target, Files: "a"})
	before := output(t, path, "rev-parse", target, "refs/heads/a")

	merge, err := git.Repository(path).Merge(t.Context(), target, "refs/heads/a", "Land a")
	if err != nil || merge.Commit == "" || merge.Conflicts != nil {
		t.Fatalf("got %+v, %v", merge, err)
	}
	if got := output(t, path, "rev-parse", target); got != merge.Commit {
		t.Errorf("target is %s, want %s", got, merge.Commit)
	}
	if got := output(t, path, "rev-parse", target+"^1", target+"^2"); got != before {
		t.Errorf("parents\n%s, want\n%s", got, before)
	}
	if got := output(t, path, "ls-tree", "--name-only", target); got != "a\nbase" {
		t.Errorf("files %q", got)
	}
}

// A process that died between moving the target and its answer tries again.
func TestMergeAgainChangesNothing(t *testing.T) {
	path := create(t, git.Commit{Ref: target, Files: "base"},
		git.Commit{Ref: "refs/heads/a", From: target, Files: "a"}, git.Commit{Ref: "refs/heads/b", From: target, Files: "b"})
	repository := git.Repository(path)
	for _, change := range []string{"refs/heads/a", "refs/heads/b"} {
		if _, err := repository.Merge(t.Context(), target, change, "Land"); err != nil {
			t.Fatal(err)
		}
	}
	head := output(t, path, "rev-parse", target)
	for _, change := range []string{"refs/heads/a", "refs/heads/b"} {
		merge, err := repository.Merge(t.Context(), target, change, "Land")
		if err != nil || merge.Commit != head {
			t.Errorf("%s again: %+v, %v", change, merge, err)
		}
	}
	if now := output(t, path, "rev-parse", target); now != head {
		t.Errorf("target moved to %s", now)
	}
}

// A change that has the target's content already still becomes part of its
// history.
func TestMergeOfNothingIsInTheHistory(t *testing.T) {
	path := create(t, git.Commit{Ref: target, Files: "base"}, git.Commit{Ref: "refs/heads/empty", From: target})
	merge, err := git.Repository(path).Merge(t.Context(), target, "refs/heads/empty", "Land empty")
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, path, "rev-parse", target+"^2"); got != output(t, path, "rev-parse", "refs/heads/empty") || merge.Commit == "" {
		t.Errorf("merge %+v has second parent %s", merge, got)
	}
}

func TestConflictLeavesTheTarget(t *testing.T) {
	path := create(t, git.Commit{Ref: "refs/heads/old", Files: "x y", Content: "0"},
		git.Commit{Ref: target, From: "refs/heads/old", Files: "x y", Content: "1"},
		git.Commit{Ref: "refs/heads/a", From: "refs/heads/old", Files: "x y z", Content: "2"})
	head := output(t, path, "rev-parse", target)
	for range 2 {
		merge, err := git.Repository(path).Merge(t.Context(), target, "refs/heads/a", "Land a")
		if err != nil || merge.Commit != "" || !slices.Equal(merge.Conflicts, []string{"x", "y"}) {
			t.Fatalf("got %+v, %v", merge, err)
		}
	}
	if now := output(t, path, "rev-parse", target); now != head {
		t.Errorf("target moved to %s", now)
	}
}

// Writers that do not know of each other never undo each other's merge.
func TestConcurrentMergesLoseNone(t *testing.T) {
	const changes = 8
	commits := []git.Commit{{Ref: target, Files: "base"}}
	for i := range changes {
		commits = append(commits, git.Commit{Ref: fmt.Sprintf("refs/heads/c%d", i), From: target, Files: fmt.Sprint("f", i)})
	}
	path := create(t, commits...)
	var wg sync.WaitGroup
	for i := range changes {
		wg.Go(func() {
			for t.Context().Err() == nil {
				if _, err := git.Repository(path).Merge(t.Context(), target, fmt.Sprintf("refs/heads/c%d", i), "Land"); err == nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if got := output(t, path, "ls-tree", "--name-only", target); got != "base\nf0\nf1\nf2\nf3\nf4\nf5\nf6\nf7" {
		t.Errorf("files %q", got)
	}
	if got := output(t, path, "rev-list", "--count", "--merges", target); got != fmt.Sprint(changes) {
		t.Errorf("%s merges, want %d", got, changes)
	}
}

func TestMergeRefusesUnknownRefs(t *testing.T) {
	path := create(t, git.Commit{Ref: target, Files: "base"}, git.Commit{Ref: "refs/heads/a", From: target, Files: "a"})
	for _, c := range []struct{ target, change, names string }{
		{target, "refs/heads/missing", "refs/heads/missing"},
		{"refs/heads/missing", "refs/heads/a", "refs/heads/missing"},
		{target, "refs/heads/a..b", "a..b"},
		{target, "refs/heads/../heads/a", ".."},
	} {
		_, err := git.Repository(path).Merge(t.Context(), c.target, c.change, "Land")
		if !errors.Is(err, git.ErrNoRef) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestErrorsNameTheRepository(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), t.TempDir()} {
		if _, err := git.Repository(path).Resolve(t.Context(), "HEAD"); err == nil || errors.Is(err, git.ErrNoRef) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := git.Repository(t.TempDir()).Resolve(ctx, "HEAD"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A hook's environment names another repository.
func TestEnvironmentDoesNotRedirect(t *testing.T) {
	path := create(t, git.Commit{Ref: target, Files: "base"})
	t.Setenv("GIT_DIR", t.TempDir())
	if _, err := git.Repository(path).Resolve(t.Context(), target); err != nil {
		t.Error(err)
	}
}

func TestCheckVersion(t *testing.T) {
	if err := git.CheckVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, want string }{
		{"echo git version 2.37.9", "install git 2.38 or newer"},
		{"echo something else", "install git 2.38 or newer"},
		{"exit 1", "must be installed"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "git"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		if err := git.CheckVersion(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.script, err)
		}
	}
}

func create(t *testing.T, commits ...git.Commit) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "repository.git")
	if err := git.Create(t.Context(), path, commits); err != nil {
		t.Fatal(err)
	}
	return path
}

func output(t *testing.T, path string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", path}, args...)...).Output()
	if err != nil {
		t.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}
