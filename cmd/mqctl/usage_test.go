package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Exit code 2 means that nothing was touched: here nothing could have been
// connected to, which is exit code 1.
func TestUsageIsCheckedBeforeConnecting(t *testing.T) {
	const both, none = "both --tenant and --all-tenants are given", "give --tenant NAME, or --all-tenants"
	var cases [][]string // what it says, then the arguments
	for _, listing := range []string{
		"topics", "groups", "offsets", "leases", "leases --stale", "subscribers", "deadletters", "lag", "lag --watch=1s", "top", "doctor",
	} {
		args := strings.Fields(listing)
		cases = append(cases, append([]string{none}, args...), append([]string{both}, append(args, "--tenant", "acme", "--all-tenants")...))
	}
	one := []string{"--tenant", "acme", "--topic", "orders", "--key", "k", "--id", "i"}
	cases = append(cases,
		[]string{`unknown command "lags" for "mqctl"; did you mean lag?; see mqctl --help`, "lags"},
		[]string{`unknown command "move" for "mqctl message"; see`, "message", "move"},
		[]string{`unknown command "lst" for "mqctl message"; did you mean list?; see`, "message", "lst"},
		[]string{"delete, list, publish, redrive, show", "message"},
		[]string{"unknown flag: --tenants", "lag", "--tenants", "acme"},
		[]string{"unknown command", "topics", "acme"},
		[]string{`required flag(s) "id", "key"`, "message", "show", "--tenant", "acme", "--topic", "orders"},
		[]string{"tenant: must not be empty", "lag", "--tenant", ""},
		[]string{"is no quoted string", "lag", "--tenant", `"acme`},
		[]string{"only ASCII", "lag", "--tenant", "tänant"},
		[]string{"--limit 0: want 1 to 9999", "offsets", "--tenant", "acme", "--limit", "0"},
		[]string{"is no cursor", "offsets", "--tenant", "acme", "--after", "17"},
		[]string{"give --tenant", "offsets", "--all-tenants", "--after", "e30"},
		[]string{"--watch 1ms: want 100ms or more", "lag", "--tenant", "acme", "--watch=1ms"},
		[]string{"an interval goes with --watch", "lag", "--tenant", "acme", "5s"},
		[]string{"--interval 0s", "top", "--tenant", "acme", "--interval", "0s"},
		[]string{"--timeout -1s", "lag", "--tenant", "acme", "--timeout", "-1s"},
		append([]string{"leave --json", "message", "show", "--raw", "--json"}, one...),
		append([]string{"either --key KEY", "lease", "release", "--yes", "--group", "billing"}, one[:4]...),
		append([]string{"--rate -1", "deadletter", "redrive", "--yes", "--rate", "-1"}, one[:4]...),
		append([]string{"--limit -1", "deadletter", "redrive", "--yes", "--limit", "-1"}, one[:4]...),
		append([]string{"no such file", "message", "publish", "--file", "/missing"}, one[:4]...),
		[]string{"named by --config: open /missing.yaml: no such file", "validate", "--config", "/missing.yaml"},
	)
	for _, c := range cases {
		t.Run(strings.Join(c[1:], " "), func(t *testing.T) {
			finish(t, process(t, closedPort, c[1:]...)).want(exitUsage, c[0])
		})
	}
	finish(t, process(t, closedPort, "lag", "--tenant", "acme")).want(exitFailed, "mq@127.0.0.1:1/queue")
}

func TestConfigurationIsThatOfTheServices(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		args []string
		file string
		want string
	}{
		"no DSN":                 {env: []string{"MQ_DSN="}, want: "MQ_DSN to user:password@tcp(host:3306)/database"},
		"bad DSN":                {env: []string{"MQ_DSN=mq:secret@tcp"}, want: "mqctl: MQ_DSN: mq.dsn: cannot be read"},
		"MQ_CONFIG":              {env: []string{"MQ_CONFIG=a.yaml"}, file: "mq: {pool: {max_open: 1}}", want: "mqctl: a.yaml: mq.pool.max_open 1"},
		"--config":               {args: []string{"--config", "a.yaml"}, file: "mq: {nonsense: 1}", want: "nonsense"},
		"memory":                 {args: []string{"--config=a.yaml"}, file: "mq: {backend: memory}", want: `works on the database of "mysql"`},
		"no tenants":             {env: []string{"MQ_TENANTS="}, args: []string{"--all-tenants"}, want: "MQ_TENANTS, which is not set"},
		"bad tenants":            {env: []string{"MQ_TENANTS=a,a"}, args: []string{"--all-tenants"}, want: "MQ_TENANTS"},
		"bad tenants, one named": {env: []string{"MQ_TENANTS=acme,acme"}, want: "MQ_TENANTS"},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if !strings.HasPrefix(strings.Join(args, " "), "--all-tenants") {
				args = append(args, "--tenant", "acme")
			}
			cmd := process(t, closedPort, append([]string{"topics"}, args...)...)
			cmd.Env = append(cmd.Env, c.env...)
			if err := os.WriteFile(filepath.Join(cmd.Dir, "a.yaml"), []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			r := finish(t, cmd).want(exitUsage, c.want)
			if strings.Contains(r.stderr, "secret") || strings.Contains(r.stderr, "newConfig") {
				t.Errorf("it says too much: %s", r.stderr)
			}
		})
	}
}

func TestErrorsAreJSONWhereAskedFor(t *testing.T) {
	for _, args := range [][]string{{"lag", "--json"}, {"lag", "--json", "--nonsense"}, {"lag", "--nonsense", "--json"}} {
		r := finish(t, process(t, closedPort, args...)).want(exitUsage)
		r.stdout = r.stderr
		if doc := decode[struct{ Error string }](r); doc.Error == "" {
			t.Errorf("%q: %s", args, r.stderr)
		}
	}
}

func TestEveryCommandHasAnExampleThatParses(t *testing.T) {
	commands(new(app).root(), func(c *cobra.Command) {
		if c.Short == "" || !strings.Contains(c.Example, c.CommandPath()) && c.HasParent() {
			t.Errorf("%s: short %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		for example := range strings.Lines(c.Example) {
			checkCommandLine(t, example)
		}
	})
}

// commands visits all of a tree but what cobra adds.
func commands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		commands(sub, visit)
	}
}

// checkCommandLine checks that a command and its flags exist. Standard input,
// output and what is set before the command are left out.
func checkCommandLine(t testing.TB, text string) {
	t.Helper()
	_, text, _ = strings.Cut(text, "mqctl ")
	text, _, _ = strings.Cut(text, "#")
	text = strings.NewReplacer(" …", "", "'", "").Replace(text)
	text, _, _ = strings.Cut(text, " >")
	text, _, _ = strings.Cut(text, " <")
	root := new(app).root()
	root.InitDefaultCompletionCmd("completion")
	c, rest, err := root.Find(strings.Fields(text))
	if err == nil {
		err = c.ParseFlags(rest)
	}
	if err == nil && c.RunE == nil && c.Run == nil {
		err = c.ValidateArgs(rest)
	}
	if err != nil {
		t.Errorf("mqctl %s: %v", text, err)
	}
}
