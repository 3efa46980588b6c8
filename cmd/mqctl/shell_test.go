package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// hintedCommand is what a note tells somebody to paste.
var hintedCommand = regexp.MustCompile(`(?m)^  (mqctl .*)$`)

// The line that tells how to go on is one that a shell takes as it is, with all
// that was given, and it goes on.
func TestPagingHintCanBePasted(t *testing.T) {
	f := newFixture(t)
	const topic = `it's "$HOME" \ *;`
	for _, key := range []string{"k1", "k2", "k3"} {
		f.publish(acme, topic, "key with\ttab", key)
	}
	self, err := os.Executable()
	f.check(err)
	bin := t.TempDir()
	f.check(os.Symlink(self, filepath.Join(bin, "mqctl")))

	r := f.run("message", "list", "--tenant", "acme", "--topic", topic, "--key", `"key with\ttab"`, "--limit", "1", "--timeout", "20s", "--wide").
		want(exitDone, "k1", "1 row of tenant acme shown, and there are more")
	for _, next := range []string{"k2", "k3"} {
		hint := hintedCommand.FindStringSubmatch(r.stderr)
		if hint == nil {
			t.Fatalf("no command: %s", r.stderr)
		}
		cmd := process(t, f.dsn)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", hint[1]}
		cmd.Env = append(cmd.Env, "PATH="+bin)
		r = finish(t, cmd).want(exitDone, next)
		for _, flag := range []string{"--wide", "--timeout 20s", "--limit 1"} {
			if !regexp.MustCompile(flag).MatchString(hint[1]) {
				t.Errorf("%s leaves %s out", hint[1], flag)
			}
		}
	}
	if r.stderr != "" {
		t.Errorf("there is no more, and a note: %s", r.stderr)
	}
}

// With several tenants the way on is that of one.
func TestPagingHintNamesTheTenant(t *testing.T) {
	f := newFixture(t)
	for _, key := range []string{"k1", "k2"} {
		f.exec("INSERT INTO queue_partition_leases VALUES ('globex', ?, ?, ?, 'gone', 7, 1, 1000, 1000, 0, 0)", billing, orders, key)
	}
	r := f.run("leases", "--all-tenants", "--stale", "--limit", "1", "--json").want(exitDone, `{"note":"1 row of tenant globex`)
	after := decode[[]leaseRow](r)[0].Cursor
	r.want(exitDone, `\n  mqctl leases --after `+after+` --json --limit 1 --stale --tenant globex"`)
}
