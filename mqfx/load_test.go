package mqfx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/tenants"
)

// write makes a configuration file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// env looks variables up in a map.
func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// load reads configuration files with the given contents.
func load(t *testing.T, vars map[string]string, texts ...string) (Config, error) {
	t.Helper()
	var files []file
	for _, text := range texts {
		files = append(files, file{path: write(t, "test.yaml", text)})
	}
	return process{lookup: env(vars)}.load(files)
}

func mustLoad(t *testing.T, texts ...string) Config {
	t.Helper()
	c, err := load(t, nil, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLaterFilesWinKeyByKey(t *testing.T) {
	c := mustLoad(t,
		"mq: {backend: memory, subscription: {batch_size: 5, retry: {max_attempts: 5}, tenant_weights: {acme: 2}}}",
		"http: {port: 80}",
		"mq: {subscription: {retry: {initial_backoff: 2m}, tenant_weights: {globex: 3}}}",
		"mq: {subscription: {retry: {max_attempts: 7}}}",
	)
	want := DefaultConfig()
	want.Backend = "memory"
	want.Subscription.BatchSize = 5
	want.Subscription.Retry = Retry{MaxAttempts: 7, InitialBackoff: 2 * time.Minute, MaxBackoff: 2 * time.Minute, Multiplier: 2}
	want.Subscription.TenantWeights = map[tenants.ID]int{"acme": 2, "globex": 3}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDSNComesFromEnvironmentThenFileThenKey(t *testing.T) {
	const fromKey, fromFile, fromEnv = "k:p@tcp(h:1)/d", "f:p@tcp(h:1)/d", "e:p@tcp(h:1)/d"
	secret := write(t, "secret", fromFile+"\n")
	vars := map[string]string{EnvDSN: fromEnv}
	for _, tc := range []struct {
		name, yaml string
		vars       map[string]string
		want       DSN
	}{
		{"key", "mq: {dsn: '" + fromKey + "'}", nil, fromKey},
		{"file", "mq: {dsn_file: '" + secret + "'}", nil, fromFile},
		{"environment over key", "mq: {dsn: '" + fromKey + "'}", vars, fromEnv},
		{"environment over file", "mq: {dsn_file: /nonexistent}", vars, fromEnv},
		{"environment alone", "mq: {}", vars, fromEnv},
		{"empty environment", "mq: {dsn: '" + fromKey + "'}", map[string]string{EnvDSN: ""}, fromKey},
	} {
		c, err := load(t, tc.vars, tc.yaml)
		if err != nil || c.DSN != tc.want {
			t.Errorf("%s: got %v (%v), want %v", tc.name, c.DSN, err, tc.want)
		}
	}
	if _, err := load(t, nil, "mq: {dsn_file: '"+write(t, "secret", "\n")+"'}"); err == nil || !strings.Contains(err.Error(), "the file is empty") {
		t.Errorf("an empty file: error is %v", err)
	}
}

// With several files, only the one that set the value helps. A topic may take a
// value from the general subscription.
func TestBoundsErrorsNameWhoSetTheValue(t *testing.T) {
	dir := t.TempDir()
	save := func(name, text string) file {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file{path: path}
	}
	base := save("base.yaml", `
mq:
  pool: {max_open: 2, max_lifetime: 5m}
  drain_timeout: 2h
  subscription: {lease_renewal: 5s}
  topics: {a.b: {lease_duration: 4s}, a: {batch_size: 1}, a.b.c: {batch_size: 0}}
`)
	prod := save("prod.yaml", "mq: {pool: {max_open: 3}, topics: {a: {lease_duration: 5s}}}")
	secret := save("secret", "mq@tcp(h:1)/mq?loc=Local")
	named := save("named.yaml", "mq: {dsn_file: '"+secret.path+"'}")
	for _, tc := range []struct {
		files []file
		vars  map[string]string
		want  []string
	}{
		{[]file{base, prod}, nil, []string{
			prod.path + ": mq.pool.max_open 3: want 4 to 10000",
			base.path + ": mq.drain_timeout 2h0m0s: want",
			base.path + ": mq.topics.a.lease_renewal 5s: must be below the lease duration of 5s",
			base.path + ": mq.topics.a.b.lease_renewal 5s: must be below the lease duration of 4s",
			base.path + ": mq.topics.a.b.c.batch_size 0: want 1 to 1000",
		}},
		{[]file{named}, nil, []string{secret.path + `: mq.dsn parameter loc "Local"`}},
		{[]file{named}, map[string]string{EnvDSN: "mq@tcp(h:1)/mq?autocommit=0"}, []string{EnvDSN + `: mq.dsn parameter autocommit "0"`}},
	} {
		_, err := process{lookup: env(tc.vars)}.load(tc.files)
		if err == nil {
			t.Fatal("accepted")
		}
		for _, want := range tc.want {
			if !strings.Contains("\n"+err.Error(), "\n"+want) {
				t.Errorf("error is\n%v\nand lacks\n%s", err, want)
			}
		}
	}
}

func TestDollarInPasswordStays(t *testing.T) {
	t.Setenv("HOME_SWEET", "expanded")
	const dsn = "u:$HOME_SWEET$$${HOME_SWEET:x}$@tcp(h:1)/d"
	if c := mustLoad(t, "mq: {dsn: '"+dsn+"'}", "mq: {migrate: true}"); string(c.DSN) != dsn {
		t.Errorf("got %s", string(c.DSN))
	}
	c := mustLoad(t, "mq: {topics: {'$t': {dead_letter: {suffix: '$$x'}}}}")
	if got := c.For("$t").DeadLetter.Suffix; got != "$$x" {
		t.Errorf("suffix is %q", got)
	}
}

func TestFilesAreTheBaseAndTheOverlaysNamed(t *testing.T) {
	paths := func(p process) []string {
		t.Helper()
		files, err := p.files()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, f := range files {
			list = append(list, f.path)
		}
		return list
	}
	check := func(name string, p process, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, paths(p)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	none := env(nil)
	vars := env(map[string]string{EnvConfig: "c.yaml, d.yaml,"})

	t.Chdir(t.TempDir())
	check("nothing", process{lookup: none})
	if err := os.Mkdir("config", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(BaseFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("base", process{lookup: none}, BaseFile)
	check("environment", process{lookup: vars}, BaseFile, "c.yaml", "d.yaml")
	check("argument instead of environment", process{args: []string{"-v", "-config", "a.yaml,b.yaml", "x"}, lookup: vars},
		BaseFile, "a.yaml", "b.yaml")
	check("with =", process{args: []string{"--config=a.yaml"}, lookup: none}, BaseFile, "a.yaml")
	check("twice", process{args: []string{"-config=a.yaml", "-config", "b.yaml"}, lookup: none}, BaseFile, "a.yaml", "b.yaml")
	check("behind --", process{args: []string{"--", "-config", "a.yaml"}, lookup: none}, BaseFile)

	if _, err := (process{args: []string{"-config"}, lookup: none}).files(); err == nil || !strings.Contains(err.Error(), "-config: names no file") {
		t.Errorf("-config without a file: error is %v", err)
	}
}

func TestFileNamedButMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, p := range []process{
		{args: []string{"-config", "absent.yaml"}, lookup: env(nil)},
		{lookup: env(map[string]string{EnvConfig: "absent.yaml"})},
	} {
		files, err := p.files()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.load(files)
		if err == nil || !strings.Contains(err.Error(), "configuration file named by "+files[0].source+": open absent.yaml: no such file") {
			t.Errorf("error is %v", err)
		}
	}
}
