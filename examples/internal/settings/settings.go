// Package settings finds a service's configuration files and reads the service's
// own section of them. The section mq is read by mqfx.
package settings

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/config"

	"github.com/tenantmq/tenantmq/mqfx"
)

// Files lists a service's configuration files, later ones winning: the base,
// with the repository's root or the service's own folder as working directory,
// and the overlays named by -config or MQ_CONFIG. It parses the command line.
func Files(service string) []string {
	overlays := flag.String("config", os.Getenv(mqfx.EnvConfig), "configuration `files` over "+mqfx.BaseFile+", separated by commas")
	flag.Parse()
	return list(service, *overlays)
}

func list(service, overlays string) []string {
	base := filepath.Join("examples", service, mqfx.BaseFile)
	if _, err := os.Stat(base); err != nil {
		base = mqfx.BaseFile
	}
	files := []string{base}
	for path := range strings.SplitSeq(overlays, ",") {
		if path = strings.TrimSpace(path); path != "" {
			files = append(files, path)
		}
	}
	return files
}

// Section returns a constructor for a service's own section. A section that is
// missing or has unknown keys is an error.
func Section[T any](name string, files []string) func() (T, error) {
	return func() (T, error) {
		var section *T // stays nil where there is none
		sources := make([]config.YAMLOption, len(files))
		for i, path := range files {
			sources[i] = config.File(path)
		}
		provider, err := config.NewYAML(sources...)
		if err == nil {
			err = provider.Get(name).Populate(&section)
		}
		if err == nil && section == nil {
			err = fmt.Errorf("not found in %s", strings.Join(files, ", "))
		}
		if err != nil {
			return *new(T), fmt.Errorf("configuration section %s: %w", name, err)
		}
		return *section, nil
	}
}
