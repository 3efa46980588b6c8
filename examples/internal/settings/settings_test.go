package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type section struct {
	Address string            `yaml:"address"`
	Queues  map[string]string `yaml:"queues"`
}

func TestSection(t *testing.T) {
	base := write(t, "mq: {backend: memory}\nservice:\n  address: :1\n  queues: {a: $HOME, b: old}\n")
	over := write(t, "service:\n  queues: {b: new}\n")
	got, err := Section[section]("service", []string{base, over})()
	if err != nil || got.Address != ":1" || got.Queues["a"] != "$HOME" || got.Queues["b"] != "new" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, want := range map[string]string{
		write(t, "service:\n  port: 1\n"):      "port",
		write(t, "service: {address: [1]}\n"):  "service",
		write(t, "servise: {address: x}\n"):    "service: not found in ",
		write(t, "service\n\t- x"):             "configuration",
		filepath.Join(t.TempDir(), "not.yaml"): "not.yaml",
	} {
		if got, err := Section[section]("service", []string{name})(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

func TestFilesFollowTheWorkingDirectory(t *testing.T) {
	for dir, want := range map[string]string{
		"../../..":        "examples/stovepipe/config/base.yaml a.yaml b.yaml", // the root has a base of its own
		"../../stovepipe": "config/base.yaml a.yaml b.yaml",
		"/":               "config/base.yaml a.yaml b.yaml",
	} {
		t.Run(dir, func(t *testing.T) {
			t.Chdir(dir)
			if got := strings.Join(list("stovepipe", "a.yaml, b.yaml,"), " "); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
