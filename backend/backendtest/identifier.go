package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var identifierCases = []testCase{
	{"IdentifiersRefusedBeforeTheDatabase", identifiersRefused},
	{"SubscriptionRefusedBeforeTheDatabase", subscriptionRefused},
	{"IdentifiersKeptByteForByte", identifiersKept},
	{"TenantsTopicsAndGroupsKeptByteForByte", asciiKept},
	{"DelayRefusedLeavesTheDelivery", delayRefused},
}

// secret is in no error: the queue never shows a payload.
const secret = "hush-hush"

func identifiersRefused(s *stage) {
	p := s.open(s.tenant("a"))
	p.cut() // whatever reached the database would fail with another error
	ascii := map[string]string{
		"empty": "", "NUL": "a\x00b", "only NUL": "\x00", "256 bytes": strings.Repeat("x", 256),
		"trailing space": "a ", "only space": " ", "non-ASCII": "caf\u00e9", "invalid UTF-8": "a\xff", "0x80": "\x80",
	}
	unicode := map[string]string{
		"empty": "", "NUL": "a\x00b", "256 runes": strings.Repeat("x", 256), "256 runes of 4 bytes": strings.Repeat("😀", 256),
		"trailing space": "é ", "only space": " ", "invalid UTF-8": "a\xff", "half a rune": "é"[:1], "surrogate": "\xed\xa0\x80",
	}
	for _, f := range []struct {
		field  string
		values map[string]string
		set    func(*backend.Message, string)
	}{
		{"tenant", ascii, func(m *backend.Message, v string) { m.Tenant = tenants.ID(v) }},
		{"topic", ascii, func(m *backend.Message, v string) { m.Topic = v }},
		{"partition key", unicode, func(m *backend.Message, v string) { m.PartitionKey = v }},
		{"message id", unicode, func(m *backend.Message, v string) { m.ID = v }},
		{"metadata", map[string]string{"invalid UTF-8": "\xff"}, func(m *backend.Message, v string) { m.Metadata = map[string]string{"k": v} }},
		{"metadata", map[string]string{"invalid UTF-8": "\xff"}, func(m *backend.Message, v string) { m.Metadata = map[string]string{v: "v"} }},
	} {
		for name, value := range f.values {
			m := message(s.tenant("a"), "key", "m")
			m.Payload = []byte(secret)
			f.set(&m, value)
			_, err := p.Publish(s.ctx, message(s.tenant("a"), "key", "valid"), m)
			s.refused(fmt.Sprintf("Publish with %s: %s", f.field, name), f.field, err)
		}
	}
	for name, value := range ascii {
		s.refused("Pause of tenant: "+name, "tenant", p.Pause(s.ctx, tenants.ID(value), topic, group))
		s.refused("Resume of topic: "+name, "topic", p.Resume(s.ctx, s.tenant("a"), value, group))
		s.refused("DropGroup: "+name, "group", p.DropGroup(s.ctx, s.tenant("a"), topic, value))
	}
	for name, value := range unicode {
		s.refused("Redrive of key: "+name, "partition key", p.Redrive(s.ctx, s.tenant("a"), topic, value, "m"))
		s.refused("Redrive of id: "+name, "message id", p.Redrive(s.ctx, s.tenant("a"), topic, "key", value))
	}
}

// refused wants a FieldError that names the field.
func (s *stage) refused(what, field string, err error) {
	s.Helper()
	var f *backend.FieldError
	switch {
	case !errors.Is(err, backend.ErrInvalid) || !errors.As(err, &f):
		s.Errorf("%s: %v, want a FieldError", what, err)
	case !strings.Contains(f.Field, field):
		s.Errorf("%s: the error names the field %q, want %q: %v", what, f.Field, field, err)
	case f.Rule == "" || strings.Contains(err.Error(), secret) || len(err.Error()) > 500:
		s.Errorf("%s: not fit for a log: %v", what, err)
	}
}

func subscriptionRefused(s *stage) {
	p := s.open(s.tenant("a"))
	p.cut()
	for _, c := range []struct {
		field string
		topic string
		cfg   backend.SubscriptionConfig
	}{
		{"topic", "", backend.SubscriptionConfig{}},
		{"topic", "a ", backend.SubscriptionConfig{}},
		{"topic", strings.Repeat("x", 256), backend.SubscriptionConfig{}},
		{"topic", strings.Repeat("x", 252), backend.SubscriptionConfig{}}, // its dead letters do not fit
		{"group", topic, backend.SubscriptionConfig{Group: " "}},
		{"group", topic, backend.SubscriptionConfig{Group: "a\x00"}},
		{"subscriber name", topic, backend.SubscriptionConfig{SubscriberName: "é"}},
		{"ordering", topic, backend.SubscriptionConfig{Ordering: 7}},
		{"start", topic, backend.SubscriptionConfig{Start: -1}},
		{"max in flight", topic, backend.SubscriptionConfig{MaxInFlight: -1}},
		{"batch size", topic, backend.SubscriptionConfig{BatchSize: backend.MaxBatchSize + 1}},
		{"poll interval", topic, backend.SubscriptionConfig{PollInterval: 5}}, // nanoseconds
		{"visibility timeout", topic, backend.SubscriptionConfig{VisibilityTimeout: -time.Second}},
		{"lease duration", topic, backend.SubscriptionConfig{LeaseDuration: time.Millisecond}},
		{"lease renewal", topic, backend.SubscriptionConfig{LeaseDuration: time.Second, LeaseRenewal: time.Second}},
		{"max attempts", topic, backend.SubscriptionConfig{Retry: backend.RetryPolicy{MaxAttempts: -1}}},
		{"multiplier", topic, backend.SubscriptionConfig{Retry: backend.RetryPolicy{Multiplier: 0.5}}},
		{"max backoff", topic, backend.SubscriptionConfig{Retry: backend.RetryPolicy{InitialBackoff: time.Second, MaxBackoff: time.Millisecond}}},
		{"suffix", topic, backend.SubscriptionConfig{DeadLetter: backend.DeadLetterPolicy{Suffix: "é"}}},
		{"weight", topic, backend.SubscriptionConfig{TenantWeights: map[tenants.ID]int{s.tenant("a"): -1}}},
	} {
		if c.cfg.Group == "" {
			c.cfg.Group = group
		}
		_, err := p.Subscribe(s.ctx, c.topic, c.cfg)
		s.refused("Subscribe", c.field, err)
	}
	_, err := p.Subscribe(s.ctx, topic, backend.SubscriptionConfig{})
	s.refused("Subscribe without group", "group", err)
}

// hostile identifiers that differ, if only just.
func hostile() []string {
	list := []string{
		"a", "A", "á", "a\u0301", "Å", "\u212b", "ß", "ss", "ﬁ", "fi", " a", "  a", "\ta", "a\t", "a\n", "a\r\n", "a\u00a0", "a\u200b",
		"a\x01", "a\x1f", "a\x7f", "\x01", "'", "''", `"`, "`", `\`, `\'`, `\\`, `\0`, "%", "_", "a%", "a_", "?", "??", ":a", "@a", "--", "/*", "*/", ";",
		"' OR 1=1 -- x", "'; DROP TABLE queue_messages; --", "0", "00", "0x00", "1", "1.0", "1e0", "NULL", "null", "true", "{}", "../..", "a/b", "a b",
		"😀", "😁", "👩‍👩‍👧", "𝔘", "\U0010ffff", "\ufeffa", "\ufffd", "ı", "i", "I", "İ", "ｱ", "ア", "漢", "Ω", "\u2126",
		strings.Repeat("x", 255), strings.Repeat("x", 254) + "y", strings.Repeat("é", 255), strings.Repeat("😀", 255),
		strings.Repeat("😀", 254) + "😁", strings.Repeat("'", 255), strings.Repeat(`\`, 255), strings.Repeat(" ", 254) + "x",
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func identifiersKept(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	var batch []backend.Message
	for i, key := range hostile() {
		batch = append(batch, message(a, key, "m"), message(a, "key of ids", key))
		batch[2*i].Metadata = map[string]string{"id": key, key: "id"}
	}
	batch = s.publish(p, batch...) // fails on a duplicate
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, MaxInFlight: 20}).ackAll()
	s.within("all acked", acks(batch))
	l := s.history.log()
	s.faultless(l.exactlyOnce(batch), l.inOrder(backend.Strict), l.oneAtATime(), l.attemptsIn(1))
	s.finish(c, a)
}

func asciiKept(s *stage) {
	names := slices.DeleteFunc(hostile(), func(n string) bool { return backend.CheckTopic(n+backend.DefaultDeadLetterSuffix) != nil })
	names = append(names, strings.Repeat("t", backend.MaxIdentLength-len(backend.DefaultDeadLetterSuffix)))
	all := []byte("x")
	for b := byte(1); b <= 0x7f; b++ {
		all = append(all, b)
	}
	names = append(names, string(all))

	// Tenants are the suite's own, made hostile by their ends.
	var list []tenants.ID
	for _, n := range names {
		if id := s.tenant(n); id.Validate() == nil {
			list = append(list, id)
		}
	}
	p := s.open(list...)
	var batch []backend.Message
	for _, t := range list {
		batch = append(batch, message(t, "key", "m"))
	}
	batch = s.publish(p, batch...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	s.within("all tenants' acked", acks(batch))
	s.faultless(s.history.log().exactlyOnce(batch))
	s.finish(c, list...)

	t := list[0]
	for i, n := range names {
		// One topic after the other, each consumed by a group of its name.
		m := message(t, "key", "m")
		m.Topic = n
		s.publish(p, m)
		cfg := backend.SubscriptionConfig{Group: n, SubscriberName: names[len(names)-1-i]}
		c := s.subscribeTo(p, n, cfg)
		d := c.expect(m)
		d.must(d.reject(errors.New("give up")))
		c.stop()
		cfg.DeadLetter.Disabled = true // the topic of dead letters of dead letters would not fit
		dead := s.subscribeTo(p, n+backend.DefaultDeadLetterSuffix, cfg)
		d = dead.next()
		if f, ok := d.Failure(); !ok || f.OriginalTopic != n || f.Group != n {
			s.Errorf("failure of topic %q, group %q: %+v, %v", n, n, f, ok)
		}
		d.done()
		s.finish(dead, t)
	}
}

func delayRefused(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	for _, delay := range []time.Duration{0, -time.Second, time.Microsecond, backend.MaxDuration + 1} {
		s.refused("Postpone", "delay", d.Postpone(s.ctx, delay))
		s.refused("Extend", "delay", d.Extend(s.ctx, delay))
	}
	d.done()
	s.finish(c, a)
}
