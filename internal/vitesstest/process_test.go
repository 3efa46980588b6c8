package vitesstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClosedDirectoryIsNamed(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	open := filepath.Join(closed, "open")
	if err := os.MkdirAll(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(open, "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := passable(program); err == nil || !strings.Contains(err.Error(), "chmod o+x "+closed+",") {
		t.Errorf("%v, want that %s is closed", err, closed)
	}
	if err := passable("/bin/sh"); err != nil {
		t.Error(err)
	}
}
