package mqfx

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/fx"
	"gopkg.in/yaml.v2"
)

// PrintConfig writes the configuration in effect to w, as [Config.YAML] has it,
// and beside each key the file or environment variable that set it, or that it is
// the default. List it before [Module]: it writes while the application is put
// together, and so shows what a start had to go by that failed.
func PrintConfig(w io.Writer) fx.Option {
	return fx.Module("mqfx.PrintConfig", fx.Invoke(func(p configParams, c Config) error {
		text, err := c.render(p.source(process{args: os.Args[1:], lookup: os.LookupEnv}))
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}))
}

// source returns what tells where a key comes from; nil where nothing can.
func (p configParams) source(env process) func(key string) string {
	if p.Config != nil || p.Harness != nil {
		return nil
	}
	set, err := p.origins(env)
	if err != nil {
		return nil // a file has changed since; the values are right all the same
	}
	return func(key string) string {
		if origin := set.of(key); origin != "" {
			return origin
		}
		return "default"
	}
}

func (p configParams) origins(env process) (origins, error) {
	var files []file
	if p.Files != nil {
		for _, path := range p.Files.paths {
			files = append(files, file{path: path})
		}
	} else {
		var err error
		if files, err = env.files(); err != nil {
			return nil, err
		}
	}
	_, set, err := env.loadWithOrigins(files)
	return set, err
}

// YAML returns the section mq with every key and its value, topics included, as
// a configuration file. Loading it gives the same configuration, but for the DSN:
// that is a comment without its password.
func (c Config) YAML() ([]byte, error) { return c.render(nil) }

func (c Config) render(source func(key string) string) ([]byte, error) {
	r := renderer{source: source}
	r.entry("", root, root, reflect.ValueOf(c))
	return r.out.Bytes(), r.err
}

// renderer writes YAML with a comment at each key, which the encoder cannot.
type renderer struct {
	source func(key string) string // nil: no comments
	out    bytes.Buffer
	err    error
}

// entry writes name and value; key is the name with all those above it.
func (r *renderer) entry(indent, name, key string, v reflect.Value) {
	line := indent + r.scalar(name) + ":"
	deeper := indent + "  "
	switch v.Kind() {
	case reflect.Struct:
		r.line(line, "")
		for i := range v.NumField() {
			child := v.Type().Field(i).Tag.Get("yaml")
			r.entry(deeper, child, key+"."+child, v.Field(i))
		}
	case reflect.Map:
		if v.Len() == 0 {
			r.line(line+" {}", key)
			return
		}
		r.line(line, "")
		for _, k := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		}) {
			r.entry(deeper, k.String(), key+"."+k.String(), v.MapIndex(k))
		}
	default:
		line += " " + r.scalar(v.Interface())
		if v.Type() == reflect.TypeFor[DSN]() {
			line = strings.Replace(line, indent, indent+"# ", 1)
		}
		r.line(line, key)
	}
}

func (r *renderer) line(text, key string) {
	if r.source != nil && key != "" {
		text = fmt.Sprintf("%-48s # %s", text, r.source(key))
	}
	r.out.WriteString(text + "\n")
}

// scalar keeps to one line.
func (r *renderer) scalar(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		r.err = err
	}
	one := strings.TrimSuffix(string(text), "\n")
	if !strings.Contains(one, "\n") {
		return one
	}
	if dsn, ok := v.(DSN); ok {
		return strconv.Quote(dsn.String())
	}
	return strconv.Quote(reflect.ValueOf(v).String())
}
