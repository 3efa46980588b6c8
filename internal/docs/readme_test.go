// Package docs checks that what the documents show is so.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestReadmeServiceCompiles builds the whole service of the README, which is to
// stay within 25 lines.
func TestReadmeServiceCompiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```go\npackage main\n")
	service, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("README.md shows no package main")
	}
	service = "package main\n" + service
	lines := 0
	for line := range strings.Lines(service) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 25 {
		t.Errorf("the README's service has %d lines of code, more than 25", lines)
	}
	_, rest, ok = strings.Cut(string(text), "```go\nfunc TestLand")
	test, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("README.md shows no test")
	}
	dir := t.TempDir()
	files := map[string]string{"main.go": service, "main_test.go": testImports + "func TestLand" + test}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "vet", filepath.Join(dir, "main.go"), filepath.Join(dir, "main_test.go"))
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// testImports are what the README's test leaves out.
const testImports = `package main

import (
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/mqfx/mqfxtest"
	"github.com/tenantmq/tenantmq/publish"
)

`

// TestLinksLeadSomewhere follows the relative links of all documents.
func TestLinksLeadSomewhere(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			target, _, _ = strings.Cut(target, "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, target)
			}
		}
	}
}

// TestNamedTestsExist looks for every test that a document names.
func TestNamedTestsExist(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`)
	for _, doc := range append(docs, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.FindAllString(string(text), -1) {
			if name == "TestMain" || name == "TestName" || name == "TestLand" { // TestLand is shown whole
				continue
			}
			grep := exec.CommandContext(t.Context(), "git", "grep", "-q", "func "+name+"(", "--", "*_test.go")
			grep.Dir = root
			if err := grep.Run(); err != nil {
				t.Errorf("%s names %s, which is not there", doc, name)
			}
		}
	}
}
