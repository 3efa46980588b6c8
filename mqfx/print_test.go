package mqfx

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenantmq/tenantmq/tenants"
)

func TestPrintedConfigurationLoadsAgain(t *testing.T) {
	for name, c := range map[string]Config{
		"default":   DefaultConfig(),
		"every key": mustLoad(t, everyKey),
		"names": mustLoad(t, `
mq:
  subscription: {tenant_weights: {"007": 2, "no": 3}, handler_timeout: 1m, dead_letter: {disabled: true, suffix: "# \n'x\t"}}
  topics:
    "~": {batch_size: 1, handler_timeout: 0}
    orders.created: {dead_letter: {disabled: false}}
    "a b: c": {tenant_weights: {"007": 4}}
    "two\nlines": {subscriber_name: "`+strings.Repeat("a ", 60)+`\na"}
`),
	} {
		for how, source := range map[string]func(string) string{"plain": nil, "with sources": func(string) string { return "x: {y" }} {
			text, err := c.render(source)
			if err != nil {
				t.Fatal(err)
			}
			want := c
			want.DSN = ""
			got, err := load(t, nil, string(text))
			if err != nil {
				t.Fatalf("%s, %s: %v\n%s", name, how, err, text)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s: (-printed +loaded)\n%s", name, how, diff)
			}
		}
	}
}

func TestPrintedConfigurationNamesSources(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("config", 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		BaseFile:    "mq: {backend: memory, pool: {max_open: 40}, subscription: {batch_size: 7}, topics: {land: {max_in_flight: 9}}}",
		"prod.yaml": "mq: {pool: {max_open: 50}}",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(EnvConfig, "prod.yaml")
	t.Setenv(EnvDSN, "mq:s3cret@tcp(db:1)/mq")
	t.Setenv(tenants.EnvVar, "")
	printed := func(opts ...fx.Option) string {
		t.Helper()
		var out bytes.Buffer
		app := fxtest.New(t, append(opts, PrintConfig(&out), Module)...)
		if app.Err() != nil {
			t.Fatal(app.Err())
		}
		return out.String()
	}

	text := printed()
	for _, want := range []string{
		`(?m)^  backend: memory +# config/base\.yaml$`,
		`(?m)^  # dsn: mq@db:1/mq +# MQ_DSN$`,
		`(?m)^    max_open: 50 +# prod\.yaml$`,
		`(?m)^    max_lifetime: 5m0s +# default$`,
		`(?m)^      max_in_flight: 9 +# config/base\.yaml$`,
		`(?m)^      batch_size: 7 +# config/base\.yaml$`,
		`(?m)^  drain_timeout: 10s +# default$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no line matches %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Errorf("the password shows in\n%s", text)
	}
	if text := printed(WithConfigFiles("prod.yaml")); !strings.Contains(text, "# prod.yaml") || strings.Contains(text, BaseFile) {
		t.Errorf("files named in Go: got\n%s", text)
	}
	if text := printed(WithConfig(Config{Backend: BackendMemory})); !strings.Contains(text, "backend: memory\n") {
		t.Errorf("a configuration made in Go: got\n%s", text)
	}
}

// A secret often ends with the line's end of the command that made it.
func TestPrintedConfigurationHidesAPasswordOnSeveralLines(t *testing.T) {
	for _, dsn := range []DSN{"user:s3cret@tcp(h:3306)/db\n", "us\ner:s3cret@tcp(h:3306)/db", DSN("user:s3cret@tcp(h:3306)/" + strings.Repeat("long name ", 20))} {
		text, err := Config{DSN: dsn}.YAML()
		if err != nil || strings.Contains(string(text), "s3cret") {
			t.Errorf("%.60s, %v", text, err)
		}
	}
	t.Setenv(EnvDSN, " user:s3cret@tcp(h:3306)/db\n")
	c, err := process{lookup: os.LookupEnv}.load(nil)
	if err != nil || string(c.DSN) != "user:s3cret@tcp(h:3306)/db" {
		t.Errorf("DSN %q, %v", string(c.DSN), err)
	}
}
