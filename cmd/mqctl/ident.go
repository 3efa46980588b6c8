package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// quote shows a name so that it cannot disturb the terminal, can be told from
// its neighbours, and can be given back as a flag: [unquote] undoes it.
func quote(s string) string {
	plain := s != "" && s == strings.TrimSpace(s) && !strings.HasPrefix(s, `"`) && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// unquote takes a flag's value as it is, or as Go and JSON write it if a double
// quote comes first.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	name, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf(`begins with a double quote, but is no quoted string such as "a\nb"; put a name that itself begins with one into quotes, as in %s`, strconv.Quote(s))
	}
	return name, nil
}

// printable quotes what would disturb the terminal within a text of several
// lines.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// ident is a flag that takes a name. It implements pflag.Value.
type ident struct {
	value *string
	check func(string) error
}

func (i ident) Set(s string) error {
	name, err := unquote(s)
	if err == nil {
		err = i.check(name)
	}
	if err == nil {
		*i.value = name
	}
	return err
}

func (i ident) String() string {
	if i.value == nil || *i.value == "" {
		return ""
	}
	return quote(*i.value)
}

func (ident) Type() string { return "name" }

// target is what a command works on. Its commands take the parts they need.
type target struct{ tenant, topic, group, key, id string }

func (t *target) tenantID() tenants.ID { return tenants.ID(t.tenant) }

// part is a flag for a part of a target.
func (t *target) part(name string) (value *string, check func(string) error, help string) {
	switch name {
	case "tenant":
		return &t.tenant, func(s string) error { return backend.CheckTenant(tenants.ID(s)) }, "the tenant"
	case "topic":
		return &t.topic, backend.CheckTopic, "the topic"
	case "group":
		return &t.group, backend.CheckGroup, "the consumer group"
	case "key":
		return &t.key, backend.CheckPartitionKey, "the partition key"
	case "id":
		return &t.id, backend.CheckMessageID, "the message's id"
	}
	panic("no part of a target is called " + name)
}

// need adds flags that must be given.
func (t *target) need(c *cobra.Command, names ...string) {
	for _, name := range names {
		value, check, help := t.part(name)
		c.Flags().Var(ident{value, check}, name, help)
		_ = c.MarkFlagRequired(name) // it was added right here
	}
}

// may adds flags that narrow the work down.
func (t *target) may(c *cobra.Command, names ...string) {
	for _, name := range names {
		value, check, help := t.part(name)
		c.Flags().Var(ident{value, check}, name, help+"; all if not given")
	}
}

// String names the target for people, as far as it is given.
func (t *target) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"tenant", t.tenant}, {"topic", t.topic}, {"group", t.group}, {"partition key", t.key}, {"message", t.id},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+quote(p.value))
		}
	}
	return strings.Join(parts, ", ")
}
