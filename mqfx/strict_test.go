package mqfx

import (
	"strings"
	"testing"

	"go.uber.org/config"
)

func TestBadConfigurationNamesFileKeyValueAndRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml string
		want []string
	}{
		"misspelt root":          {"mqq: {backend: memory}", []string{"test.yaml: mq: section not found, only mqq; put the queue's settings under mq"}},
		"only other roots":       {"http: {}\nlogging: {}", []string{"mq: section not found, only http, logging"}},
		"root in capitals":       {"MQ: {backend: memory}", []string{"only MQ"}},
		"root of nothing":        {"mq: ~", []string{"mq: has no value; give it one, or remove it for the default"}},
		"root without value":     {"mq:\n  # backend: memory\n", []string{"mq: has no value"}},
		"section without value":  {"mq: {subscription: }", []string{"mq.subscription: has no value"}},
		"key without value":      {"mq: {drain_timeout: ~}", []string{"mq.drain_timeout: has no value"}},
		"not a mapping":          {"- mq", []string{"the file holds a list: want a mapping with the section mq"}},
		"section is text":        {"mq: {retry: 3, subscription: fast}", []string{"mq.subscription text: want a mapping", "mq.retry: unknown key"}},
		"unknown key":            {"mq: {subscription: {pol_interval: 5s}}", []string{"test.yaml: mq.subscription.pol_interval: unknown key; did you mean poll_interval? known are subscriber_name, "}},
		"unknown key, far off":   {"mq: {speed: 5}", []string{"mq.speed: unknown key; known are backend, dsn, "}},
		"unknown key of a topic": {"mq: {topics: {land: {retries: 1}}}", []string{"mq.topics.land.retries: unknown key"}},
		"two mistakes":           {"mq: {speed: 5, migrate: maybe}", []string{"mq.speed: unknown", "\n", `mq.migrate "maybe": want true or false`}},
		"truth in quotes":        {`mq: {migrate: "yes"}`, []string{`test.yaml: mq.migrate "yes": want true or false`}},
		"duplicate key":          {"mq: {migrate: true, migrate: false}", []string{"test.yaml: yaml:", `"migrate" already set`}},
		"second document":        {"mq: {}\n---\nmq: {migrate: true}", []string{"test.yaml: a second document behind --- would be ignored"}},
		"broken YAML":            {"mq: [", []string{"test.yaml: yaml: line 1"}},

		"bare number":         {"mq: {subscription: {poll_interval: 5}}", []string{`mq.subscription.poll_interval 5: a number alone counts nanoseconds; write a unit, as in "5s" or "5ms"`}},
		"bare fraction":       {"mq: {subscription: {poll_interval: 0.5}}", []string{`poll_interval 0.5: a number alone counts nanoseconds; write a unit, as in "0.5s"`}},
		"bare zero":           {"mq: {drain_timeout: 0}", []string{"mq.drain_timeout 0: a number alone"}},
		"nanoseconds":         {"mq: {subscription: {poll_interval: 5ns}}", []string{"mq.subscription.poll_interval 5ns: want 1ms to 1m0s"}},
		"zero duration":       {"mq: {subscription: {lease_renewal: 0s}}", []string{`mq.subscription.lease_renewal "0s": must be above zero; remove it for the default`}},
		"negative duration":   {"mq: {subscription: {retry: {max_backoff: -1s}}}", []string{`mq.subscription.retry.max_backoff "-1s": must be above zero`}},
		"no duration":         {"mq: {drain_timeout: soon}", []string{`mq.drain_timeout "soon": want a duration such as "5s" or "45ms"`}},
		"duration is a truth": {"mq: {drain_timeout: yes}", []string{"mq.drain_timeout the truth value true: want a duration"}},
		"zero of a topic":     {"mq: {topics: {land: {visibility_timeout: 0s}}}", []string{`mq.topics.land.visibility_timeout "0s": must be above zero`}},
		"negative timeout":    {"mq: {subscription: {handler_timeout: -1s}}", []string{`mq.subscription.handler_timeout "-1s": must be above zero`}},
		"endless timeout":     {"mq: {topics: {land: {handler_timeout: 8761h}}}", []string{"test.yaml: mq.topics.land.handler_timeout 8761h0m0s: want 1ms to 8760h0m0s"}},
		"instant timeout":     {"mq: {subscription: {handler_timeout: 5ns}}", []string{"test.yaml: mq.subscription.handler_timeout 5ns: want 1ms to 8760h0m0s"}},
		"timeout of a number": {"mq: {subscription: {handler_timeout: 5}}", []string{"mq.subscription.handler_timeout 5: a number alone counts nanoseconds"}},
		"too long":            {"mq: {drain_timeout: 2h}", []string{"test.yaml: mq.drain_timeout 2h0m0s: want 1ms to 1h0m0s"}},
		"renewal above lease": {"mq: {subscription: {lease_duration: 1s, lease_renewal: 1s}}", []string{"mq.subscription.lease_renewal 1s: must be below the lease duration of 1s"}},
		"backoffs the wrong way": {
			"mq: {subscription: {retry: {initial_backoff: 5s, max_backoff: 1s}}}",
			[]string{"mq.subscription.retry.max_backoff 1s: want 5s to"},
		},

		"zero number":           {"mq: {subscription: {max_in_flight: 0}}", []string{"mq.subscription.max_in_flight 0: want 1 to 100000"}},
		"zero attempts":         {"mq: {subscription: {retry: {max_attempts: 0}}}", []string{"mq.subscription.retry.max_attempts 0: want 1 to 1000"}},
		"zero of a topic's":     {"mq: {topics: {land: {batch_size: 0}}}", []string{"mq.topics.land.batch_size 0: want 1 to 1000"}},
		"small pool":            {"mq: {pool: {max_open: 1}}", []string{"test.yaml: mq.pool.max_open 1: want 4 to 10000"}},
		"no reserve":            {"mq: {pool: {reserve: 0}}", []string{"test.yaml: mq.pool.reserve 0: want 1 to 16"}},
		"large reserve":         {"mq: {pool: {reserve: 17}}", []string{"mq.pool.reserve 17: want 1 to 16"}},
		"negative series":       {"mq: {metrics: {tenants: -1}}", []string{"test.yaml: mq.metrics.tenants -1: want 0 to 1000"}},
		"many series":           {"mq: {metrics: {tenants: 1001}}", []string{"mq.metrics.tenants 1001: want 0 to 1000"}},
		"large payload":         {"mq: {publish: {max_payload: 99999999}}", []string{"mq.publish.max_payload 99999999: want 1 to 15728640"}},
		"number with a unit":    {"mq: {publish: {max_payload: 1MiB}}", []string{`mq.publish.max_payload "1MiB": want a whole number`}},
		"fraction":              {"mq: {subscription: {batch_size: 1.5}}", []string{"mq.subscription.batch_size the number 1.5: want a whole number"}},
		"multiplier":            {"mq: {subscription: {retry: {multiplier: .nan}}}", []string{"mq.subscription.retry.multiplier NaN: want 1 to 100"}},
		"unknown ordering":      {"mq: {subscription: {ordering: fifo}}", []string{`mq.subscription.ordering "fifo": want "strict" or "relaxed"`}},
		"unknown start":         {"mq: {topics: {land: {start: newest}}}", []string{`mq.topics.land.start "newest": want "earliest" or "latest"`}},
		"unknown backend":       {"mq: {backend: postgres}", []string{`mq.backend "postgres": want one of ["mysql" "memory"]`}},
		"unknown level":         {"mq: {log: {level: loud, format: xml}}", []string{`mq.log.level "loud": want one of`, `mq.log.format "xml": want one of`}},
		"no suffix":             {`mq: {subscription: {dead_letter: {suffix: ""}}}`, []string{`mq.subscription.dead_letter.suffix "": must not be empty`}},
		"topic and suffix":      {"mq: {topics: {" + strings.Repeat("t", 253) + ": {batch_size: 1}}}", []string{"of 253 bytes: with the dead letter suffix"}},
		"subscriber name":       {"mq: {subscription: {subscriber_name: zoë}}", []string{`mq.subscription.subscriber_name "zoë": byte`}},
		"weight":                {"mq: {subscription: {tenant_weights: {acme: 0}}}", []string{"mq.subscription.tenant_weights.acme 0: want 1 to 1000"}},
		"tenant read as truth":  {"mq: {subscription: {tenant_weights: {no: 2}}}", []string{"mq.subscription.tenant_weights.false: the key reads as the truth value false; put it in quotes"}},
		"tenant read as number": {"mq: {subscription: {tenant_weights: {007: 2}}}", []string{"mq.subscription.tenant_weights.7: the key reads as the number 7; put it in quotes"}},
		"text read as number":   {"mq: {subscription: {dead_letter: {suffix: 007}}}", []string{"mq.subscription.dead_letter.suffix the number 7: want text; put it in quotes"}},
		"two makers of tables":  {"mq: {migrate: true, external_schema: true}", []string{"mq.migrate true: mq.external_schema says that another tool makes the tables"}},
		"two sources of a DSN":  {"mq: {dsn: a, dsn_file: b}", []string{`mq.dsn_file "b": mq.dsn is set as well; remove one of them`}},
		"no file for the DSN":   {"mq: {dsn_file: /nonexistent/dsn}", []string{"test.yaml: mq.dsn_file: open /nonexistent/dsn: no such file"}},
		"DSN nobody can read":   {"mq: {dsn: 'mq:s3cret/mq'}", []string{"test.yaml: mq.dsn: cannot be read; want user:password@tcp"}},
		"DSN parameter":         {"mq: {dsn: 'mq@tcp(h:1)/mq?loc=Local'}", []string{`test.yaml: mq.dsn parameter loc "Local": the queue keeps all times in UTC`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, nil, tc.yaml)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is\n%v\nand lacks\n%s", err, want)
				}
			}
		})
	}
}

func TestOverlayMayLeaveOutTheSectionButNotMisspellIt(t *testing.T) {
	base := "mq: {backend: memory}"
	for _, overlay := range []string{"http: {port: 80}", "mx: {host: mail}", "ms: 1", "q: {m: 2}", "---\n# mq: {backend: mysql}\n", "# nothing\n"} {
		if _, err := load(t, nil, base, overlay); err != nil {
			t.Errorf("%q: %v", overlay, err)
		}
	}
	for _, misspelt := range []string{"mqq", "qm", "m", "MQ", "mq_", "mp"} {
		if _, err := load(t, nil, base, misspelt+": {migrate: true}"); err == nil || !strings.Contains(err.Error(), "only "+misspelt) {
			t.Errorf("%s: error is %v", misspelt, err)
		}
	}
	if _, err := load(t, nil, "mq: {backend: memory}\nmqq: {}"); err != nil {
		t.Errorf("beside mq every other section is the application's: %v", err)
	}
}

// Nothing reaches the decoder that it would refuse, but if it did the decoder
// would refuse it.
func TestDecoderIsStrict(t *testing.T) {
	provider, err := config.NewYAML(config.Source(strings.NewReader("mq: {speed: 5}")))
	if err != nil {
		t.Fatal(err)
	}
	c := bareDefaults()
	if err := c.populate(provider.Get(root)); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("error is %v", err)
	}
	if _, err := load(t, nil, "mq: {topics: {}}\nhttp: {a: 1}", "http: [1]\nmq: {}"); err == nil || !strings.Contains(err.Error(), "can't merge") {
		t.Errorf("a list over a mapping: error is %v", err)
	}
}
