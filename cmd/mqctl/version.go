package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

type versionDoc struct {
	Version string `json:"version"`
	Schema  int64  `json:"schema"`
}

// String is what --version prints.
func (v versionDoc) String() string {
	return fmt.Sprintf("mqctl %s, for tables of version %d", v.Version, v.Schema)
}

// thisVersion is that of the module as it was built: "(devel)" where no version
// control told one.
func thisVersion() versionDoc {
	v := versionDoc{"(unknown)", mysql.SchemaVersion}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	return v
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this mqctl and of the tables it works on",
		Long: "Show the version of this mqctl and of the tables it works on. It needs no configuration and no database;\n" +
			"migrate status compares with those.",
		Example: "  mqctl version --json",
		RunE: func(*cobra.Command, []string) error {
			a.running = true
			v := thisVersion()
			return a.emit(v, func() error { return a.line("%v", v) })
		},
	}
}
