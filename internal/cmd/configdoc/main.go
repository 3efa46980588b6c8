// Command configdoc prints a reference of the configuration, made of what the
// package mqfx says and does: meanings from the comments of mqfx/config.go,
// defaults from DefaultConfig, bounds from what Validate answers to values beyond
// them. It makes docs/configuration.md, and runs in the root of the repository.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/tenants"
)

const head = `<!-- Made by ` + "`make generate`" + ` from mqfx/config.go. -->

# Configuration

The section ` + "`mq`" + ` of YAML files: %[1]s if there is one, then the overlays of the
argument ` + "`-config a.yaml,b.yaml`" + ` or else of %[2]s. Later files win key by key. Durations have a
unit (` + "`45ms`, `1m30s`" + `), sizes are bytes. A key that is unknown, has no value or is out of bounds refuses the start, with the
file that says so. ` + "`mqfx.PrintConfig`" + ` shows what is in effect, and where it came from.

| variable | meaning |
| --- | --- |
| %[2]s | overlays, separated by commas; the argument ` + "`-config`" + ` replaces it |
| %[3]s | overrides ` + "`mq.dsn` and `mq.dsn_file`" + ` |
| %[4]s | the tenants of this process, separated by commas |
`

func main() {
	log.SetFlags(0)
	text, err := document("mqfx/config.go")
	if err == nil {
		_, err = os.Stdout.WriteString(text)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// document takes the file that holds the type [mqfx.Config].
func document(source string) (string, error) {
	comments, err := readComments(source)
	if err != nil {
		return "", fmt.Errorf("read the comments of the configuration: %w", err)
	}
	w := &writer{comments: comments, config: mqfx.DefaultConfig()}
	fmt.Fprintf(&w.out, head, code(mqfx.BaseFile), code(mqfx.EnvConfig), code(mqfx.EnvDSN), code(tenants.EnvVar))
	w.section("mq", "", reflect.ValueOf(&w.config).Elem())
	return w.out.String(), nil
}

// overrides are the environment variables that win over keys.
var overrides = map[string]string{"mq.dsn": mqfx.EnvDSN, "mq.dsn_file": mqfx.EnvDSN}

type writer struct {
	out      strings.Builder
	comments comments
	config   mqfx.Config // changed and restored to probe
}

// section writes a table of the keys directly below key, and then the sections
// below it.
func (w *writer) section(key, meaning string, v reflect.Value) {
	fmt.Fprintf(&w.out, "\n## %s\n", key)
	if meaning != "" {
		fmt.Fprintf(&w.out, "\n%s\n", meaning)
	}
	w.out.WriteString("\n| key | type | default | bounds | meaning |\n| --- | --- | --- | --- | --- |\n")
	for i, f := range indexed(v.Type()) {
		child := key + "." + f.Tag.Get("yaml")
		if f.Type.Kind() == reflect.Struct {
			continue
		}
		name := code(child)
		if variable, ok := overrides[child]; ok {
			name += ", overridden by " + code(variable)
		}
		fmt.Fprintf(&w.out, "| %s | %s | %s | %s | %s |\n", name, kind(f.Type), show(v.Field(i)), w.bounds(child, v.Field(i)),
			strings.ReplaceAll(w.comments.of(v.Type(), f.Name), "|", `\|`))
	}
	for i, f := range indexed(v.Type()) {
		if f.Type.Kind() == reflect.Struct {
			text := w.comments.of(v.Type(), f.Name)
			w.section(key+"."+f.Tag.Get("yaml"), cmp.Or(text, w.comments.of(f.Type, "")), v.Field(i))
		}
	}
}

func indexed(t reflect.Type) func(yield func(int, reflect.StructField) bool) {
	return func(yield func(int, reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(i, t.Field(i)) {
				return
			}
		}
	}
}

// bounds sets a field to what no rule allows, and returns the rule.
func (w *writer) bounds(key string, v reflect.Value) string {
	before := reflect.ValueOf(v.Interface())
	defer v.Set(before)
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(-1)
	case reflect.Float64:
		v.SetFloat(-1)
	case reflect.String:
		v.SetString("?")
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Int {
			v.Set(reflect.ValueOf(map[tenants.ID]int{"acme": -1}))
		}
	}
	for _, err := range joined(w.config.Validate()) {
		field, ok := errors.AsType[*backend.FieldError](err)
		if !ok || field.Field != key && !strings.HasPrefix(field.Field, key+".") {
			continue
		}
		if rule, ok := strings.CutPrefix(field.Rule, "want "); ok {
			return short(rule)
		}
	}
	return ""
}

func joined(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}

var zeros = regexp.MustCompile(`([hm])0m0s|(m)0s`)

// short writes durations without what is zero in them.
func short(text string) string { return zeros.ReplaceAllString(text, "$1$2") }

func show(v reflect.Value) string {
	if d, ok := reflect.TypeAssert[time.Duration](v); ok {
		return code(short(d.String()))
	}
	if v.Kind() == reflect.Map || v.Kind() == reflect.String && v.Len() == 0 {
		return ""
	}
	return code(fmt.Sprint(v))
}

func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[map[tenants.ID]int]():
		return "tenants and whole numbers"
	case t.Kind() == reflect.Map:
		return "topics and sections like " + code("mq.subscription")
	}
	return map[reflect.Kind]string{
		reflect.Bool: "truth value", reflect.Int: "whole number", reflect.Float64: "number", reflect.String: "text",
	}[t.Kind()]
}

func code(text string) string { return "`" + text + "`" }
