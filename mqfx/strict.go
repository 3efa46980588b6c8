package mqfx

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// root is the one section of a configuration file that belongs to the queue.
const root = "mq"

// checkFile compares one file, before it is merged with others, with the shape
// of [Config]. The decoder is strict as well, but it forgets file and key, it
// shows values that may be secret, and takes a bare number for nanoseconds and
// an empty section for zeros.
func checkFile(content any) error {
	sections, ok := content.(map[any]any)
	if !ok {
		return &backend.FieldError{Field: "the file", Value: "holds " + describe(content), Rule: "want a mapping with the section " + root}
	}
	if section, ok := sections[root]; ok {
		var s shape
		s.check(root, section, reflect.TypeFor[Config]())
		return errors.Join(s.errs...)
	}
	// Other sections belong to the application. A file without mq is an overlay
	// of those, unless one of them is meant to be mq.
	for _, name := range names(sections) {
		if near(strings.ToLower(name), root) && resembles(sections[name], reflect.TypeFor[Config]()) {
			return missingRoot(sections)
		}
	}
	return nil
}

// resembles tells whether a section has one of the keys of t: two letters alone
// are near to many names.
func resembles(section any, t reflect.Type) bool {
	keys, ok := section.(map[any]any)
	if !ok {
		return false
	}
	for field := range t.Fields() {
		if _, ok := keys[field.Tag.Get("yaml")]; ok {
			return true
		}
	}
	return false
}

func missingRoot(sections map[any]any) error {
	return &backend.FieldError{
		Field: root, Rule: fmt.Sprintf("section not found, only %s; put the queue's settings under %s", strings.Join(names(sections), ", "), root),
	}
}

// shape collects what does not fit.
type shape struct{ errs []error }

func (s *shape) refuse(key, value, format string, args ...any) {
	s.errs = append(s.errs, &backend.FieldError{Field: key, Value: value, Rule: fmt.Sprintf(format, args...)})
}

func (s *shape) check(key string, v any, t reflect.Type) {
	switch {
	case v == nil:
		s.refuse(key, "", "has no value; give it one, or remove it for the default")
	case t == reflect.TypeFor[time.Duration]():
		s.checkDuration(key, v)
	case t.Kind() == reflect.Struct:
		s.checkStruct(key, v, t)
	case t.Kind() == reflect.Map:
		for name, value := range s.mapping(key, v) {
			s.check(key+"."+name, value, t.Elem())
		}
	case t.Kind() == reflect.Float64 && reflect.TypeOf(v).Kind() == reflect.Int:
	case t.Kind() != reflect.TypeOf(v).Kind():
		if t.Kind() == reflect.String {
			s.refuse(key, describe(v), "want text; put it in quotes")
			return
		}
		s.refuse(key, show(v), "want %s", wanted(t))
	}
}

// isZero tells whether a duration is zero, which some keys (tag zero) take for
// a word of their own.
func isZero(v any) bool {
	text, ok := v.(string)
	if !ok {
		return v == 0
	}
	d, err := time.ParseDuration(text)
	return err == nil && d == 0
}

func (s *shape) checkDuration(key string, v any) {
	text, ok := v.(string)
	if !ok {
		switch reflect.TypeOf(v).Kind() {
		case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
			s.refuse(key, fmt.Sprint(v), `a number alone counts nanoseconds; write a unit, as in "%vs" or "%vms"`, v, v)
		default:
			s.refuse(key, describe(v), `want a duration such as "5s" or "45ms"`)
		}
		return
	}
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		s.refuse(key, fmt.Sprintf("%.40q", text), `want a duration such as "5s" or "45ms"`)
	case d <= 0:
		s.refuse(key, fmt.Sprintf("%q", text), "must be above zero; remove it for the default")
	}
}

func (s *shape) checkStruct(key string, v any, t reflect.Type) {
	fields := make(map[string]reflect.StructField, t.NumField())
	var known []string
	for f := range t.Fields() {
		name := f.Tag.Get("yaml")
		fields[name] = f
		known = append(known, name)
	}
	for name, value := range s.mapping(key, v) {
		if field, ok := fields[name]; ok {
			if field.Tag.Get("zero") == "" || !isZero(value) {
				s.check(key+"."+name, value, field.Type)
			}
			continue
		}
		s.refuse(key+"."+name, "", "unknown key; %sknown are %s", suggest(name, known), strings.Join(known, ", "))
	}
}

// mapping yields the entries of v in order of their names.
func (s *shape) mapping(key string, v any) func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) {
		m, ok := v.(map[any]any)
		if !ok {
			s.refuse(key, describe(v), "want a mapping of keys to values")
			return
		}
		text := make(map[string]any, len(m))
		for k, value := range m {
			name, ok := k.(string)
			if !ok { // 007 would become 7, and no false
				s.refuse(fmt.Sprintf("%s.%v", key, k), "", "the key reads as %s; put it in quotes", describe(k))
				continue
			}
			text[name] = value
		}
		for _, name := range names(m) {
			if value, ok := text[name]; ok && !yield(name, value) {
				return
			}
		}
	}
}

func names(m map[any]any) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, fmt.Sprint(k))
	}
	slices.Sort(list)
	return list
}

// describe shows a value by its kind alone where it may be secret.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case map[any]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return fmt.Sprintf("the truth value %v", v)
	}
	return fmt.Sprintf("the number %v", v)
}

// show is describe for keys that hold no text, and so no secret.
func show(v any) string {
	if text, ok := v.(string); ok {
		return fmt.Sprintf("%.40q", text)
	}
	return describe(v)
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	}
	return "a number"
}

// near tells whether b becomes a by one letter inserted, removed, replaced or
// swapped with its neighbour, or by leaving out underscores.
func near(a, b string) bool {
	if strings.ReplaceAll(a, "_", "") == strings.ReplaceAll(b, "_", "") {
		return true
	}
	if len(a) < len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(b) && a[i] == b[i] {
		i++
	}
	rest, other := a[i:], b[i:]
	switch len(rest) - len(other) {
	case 1:
		return rest[1:] == other
	case 0:
		return len(rest) == 0 || rest[1:] == other[1:] ||
			len(rest) >= 2 && rest[0] == other[1] && rest[1] == other[0] && rest[2:] == other[2:]
	}
	return false
}
