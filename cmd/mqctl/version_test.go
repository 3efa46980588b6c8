package main

import (
	"strings"
	"testing"
)

func TestVersionNeedsNothing(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		r := finish(t, process(t, "", args...)).want(exitDone, "mqctl ", ", for tables of version 1\n")
		if strings.Contains(r.stdout, "mqctl ,") || r.stderr != "" {
			t.Errorf("%q: %s%s", args, r.stdout, r.stderr)
		}
	}
	if v := decode[versionDoc](finish(t, process(t, "", "version", "--json")).want(exitDone)); v.Schema != 1 || v.Version == "" {
		t.Errorf("%+v", v)
	}
}
