package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenantmq/tenantmq/internal/operator"
)

// again is the command line of c as it was given, to be pasted, but for some
// flags: those of other are given in place of what they were, and those it has
// "" for are left out. Values are names as they are, not as flags show them.
func again(c *cobra.Command, other map[string]string) string {
	var line strings.Builder
	line.WriteString(c.CommandPath())
	add := func(f *pflag.Flag, value string) {
		line.WriteString(" --" + f.Name)
		switch {
		case f.NoOptDefVal == "":
			line.WriteString(" " + operator.Quote(value))
		case f.NoOptDefVal != value:
			line.WriteString("=" + operator.Quote(value))
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := other[f.Name]
		switch {
		case ok && value != "":
			add(f, value)
		case !ok && f.Changed:
			if name, isName := f.Value.(ident); isName {
				add(f, *name.value)
			} else {
				add(f, f.Value.String())
			}
		}
	})
	return line.String()
}
