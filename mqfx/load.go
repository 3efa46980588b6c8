package mqfx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/config"
	"gopkg.in/yaml.v2"

	"github.com/tenantmq/tenantmq/backend"
)

// What the module reads of its process.
const (
	// EnvConfig lists overlays, separated by commas, later ones winning. The
	// argument -config does the same and replaces it.
	EnvConfig = "MQ_CONFIG"
	// EnvDSN overrides mq.dsn and mq.dsn_file.
	EnvDSN = "MQ_DSN"
	// BaseFile is read first wherever it exists, relative to the working
	// directory.
	BaseFile = "config/base.yaml"
)

// process is where a configuration is looked for.
type process struct {
	args   []string
	lookup func(string) (string, bool)
}

// files returns the configuration files in the order in which later ones win.
func (p process) files() ([]file, error) {
	var list []file
	switch _, err := os.Stat(BaseFile); {
	case err == nil:
		list = append(list, file{path: BaseFile})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	source := "-config"
	overlays, given, err := configArg(p.args)
	if err != nil {
		return nil, err
	}
	if !given {
		source = EnvConfig
		overlays, _ = p.lookup(EnvConfig)
	}
	for path := range strings.SplitSeq(overlays, ",") {
		if path = strings.TrimSpace(path); path != "" {
			list = append(list, file{path: path, source: source})
		}
	}
	return list, nil
}

// configArg finds -config in a command line without claiming it: flags belong
// to the application, which may parse the same line as it likes.
func configArg(args []string) (value string, given bool, err error) {
	var values []string
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, value, inline := strings.Cut(arg, "=")
		if name != "-config" && name != "--config" {
			continue
		}
		if !inline {
			if i+1 == len(args) {
				return "", false, &backend.FieldError{Field: "-config", Rule: "names no file; write -config a.yaml,b.yaml"}
			}
			value = args[i+1]
		}
		values = append(values, value)
	}
	return strings.Join(values, ","), len(values) > 0, nil
}

// file is a configuration file and who named it.
type file struct {
	path, source string
}

// read returns the file's bytes once they fit the shape of [Config], together
// with its sections; both are nil for a file without content.
func (f file) read() ([]byte, map[any]any, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		if f.source != "" {
			return nil, nil, fmt.Errorf("configuration file named by %s: %w", f.source, err)
		}
		return nil, nil, fmt.Errorf("configuration file: %w", err)
	}
	var content, more any
	documents := yaml.NewDecoder(bytes.NewReader(text))
	documents.SetStrict(true)
	switch err := documents.Decode(&content); {
	case errors.Is(err, io.EOF):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", f.path, err)
	case content == nil: // all of it is commented out
		return nil, nil, nil
	}
	if err := documents.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: a second document behind --- would be ignored; move it to a file of its own", f.path)
	}
	if err := checkFile(content); err != nil {
		return nil, nil, each(err, func(err error) error { return fmt.Errorf("%s: %w", f.path, err) })
	}
	return text, content.(map[any]any), nil
}

// each changes every one of joined errors, or the one that err is.
func each(err error, change func(error) error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return change(err)
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		errs = append(errs, change(err))
	}
	return errors.Join(errs...)
}

// origins tells for every key and section that is set which file set it last,
// or which environment variable.
type origins map[string]string

func (o origins) record(path, key string, v any) {
	o[key] = path
	if section, ok := v.(map[any]any); ok {
		for name, value := range section {
			o.record(path, fmt.Sprintf("%s.%v", key, name), value)
		}
	}
}

// of returns "" for a key that nobody has set. A topic's may have been set for
// all of them.
func (o origins) of(key string) string {
	if origin, ok := o[key]; ok {
		return origin
	}
	if topic, ok := strings.CutPrefix(key, root+".topics."); ok {
		for i := range len(topic) { // its name may have dots
			general := o[root+".subscription"+topic[i:]]
			if topic[i] == '.' && o[root+".topics."+topic[:i]] != "" && general != "" {
				return general
			}
		}
	}
	return ""
}

// explain says before an error who set the value.
func (o origins) explain(err error) error {
	if field, ok := errors.AsType[*backend.FieldError](err); ok {
		key, _, _ := strings.Cut(field.Field, " parameter ") // of mq.dsn
		if origin := o.of(key); origin != "" {
			return fmt.Errorf("%s: %w", origin, err)
		}
	}
	return err
}

// load merges files and environment into an effective configuration.
func (p process) load(files []file) (Config, error) {
	c, _, err := p.loadWithOrigins(files)
	return c, err
}

func (p process) loadWithOrigins(files []file) (Config, origins, error) {
	var (
		errs    []error
		found   = make(map[any]any)
		set     = make(origins)
		sources []config.YAMLOption
	)
	for _, f := range files {
		text, sections, err := f.read()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		maps.Copy(found, sections)
		if section, ok := sections[root]; ok {
			set.record(f.path, root, section)
		}
		// Source without Expand leaves a $ in a password alone; RawSource would
		// double it.
		sources = append(sources, config.Source(bytes.NewReader(text)))
	}
	if _, ok := found[root]; !ok && len(found) > 0 {
		errs = append(errs, missingRoot(found))
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, nil, err
	}
	provider, err := config.NewYAML(sources...)
	if err != nil {
		return Config{}, nil, fmt.Errorf("merge configuration files: %w", err)
	}
	c := bareDefaults()
	if err := c.populate(provider.Get(root)); err != nil {
		return Config{}, nil, fmt.Errorf("%s: %w", root, err)
	}
	if err := c.readDSN(p.lookup); err != nil {
		return Config{}, nil, set.explain(err)
	}
	if dsn, _ := p.lookup(EnvDSN); dsn != "" {
		set[root+".dsn"] = EnvDSN
	} else if c.DSNFile != "" {
		set[root+".dsn"] = c.DSNFile
	}
	c.derive()
	return c, set, errors.Join(each(c.validate(), set.explain), set.explain(c.checkDSN()))
}

// populate reads the section, and then every topic once more on top of the
// general subscription, so that it keeps what the topic leaves out.
func (c *Config) populate(section config.Value) error {
	if err := section.Populate(c); err != nil {
		return err
	}
	var topics map[string]any
	if err := section.Get("topics").Populate(&topics); err != nil {
		return err
	}
	for topic, values := range topics { // Get would split a topic at its dots
		provider, err := config.NewYAML(config.Static(map[string]any{"topic": values}))
		if err != nil {
			return fmt.Errorf("topics.%s: %w", topic, err)
		}
		s := c.Subscription
		s.TenantWeights = nil // strict decoding refuses a key that is there already
		if err := provider.Get("topic").Populate(&s); err != nil {
			return fmt.Errorf("topics.%s: %w", topic, err)
		}
		s.TenantWeights = union(c.Subscription.TenantWeights, s.TenantWeights)
		c.Topics[topic] = s
	}
	return nil
}

// readDSN settles where the DSN comes from.
func (c *Config) readDSN(lookup func(string) (string, bool)) error {
	if dsn, _ := lookup(EnvDSN); strings.TrimSpace(dsn) != "" {
		c.DSN, c.DSNFile = DSN(strings.TrimSpace(dsn)), ""
		return nil
	}
	if c.DSNFile == "" {
		return nil
	}
	if c.DSN != "" {
		return &backend.FieldError{Field: "mq.dsn_file", Value: fmt.Sprintf("%q", c.DSNFile), Rule: "mq.dsn is set as well; remove one of them"}
	}
	text, err := os.ReadFile(filepath.Clean(c.DSNFile))
	if err != nil {
		return &backend.FieldError{Field: "mq.dsn_file", Rule: fmt.Sprintf("%v; want a file that holds the DSN", err)}
	}
	c.DSN = DSN(strings.TrimSpace(string(text)))
	if c.DSN == "" {
		return &backend.FieldError{Field: "mq.dsn_file", Value: fmt.Sprintf("%q", c.DSNFile), Rule: "the file is empty; write the DSN into it"}
	}
	return nil
}

// checkDSN says what is wrong with the DSN while it is still known where it came
// from; it connects to nothing.
func (c Config) checkDSN() error {
	if c.Backend != BackendMySQL || c.DSN == "" {
		return nil
	}
	db, err := c.DSN.open()
	if err != nil {
		return err
	}
	return db.Close()
}
