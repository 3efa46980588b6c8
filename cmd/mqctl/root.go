package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// defaultTimeout is that of a statement-level command.
const defaultTimeout = 30 * time.Second

// app is one run of mqctl.
type app struct {
	in       io.Reader
	out, err io.Writer
	// Which of them are terminals. Questions need the first and the last.
	inTerminal, outTerminal, errTerminal bool
	now                                  func() time.Time

	json    bool
	wide    bool
	timeout time.Duration
	command *cobra.Command // that runs
	// running tells that the command line was understood and a command began. An
	// error before that is one of usage.
	running bool
}

// run is main with everything it takes from outside, but for the configuration:
// mqfx reads that from the process's arguments and environment, exactly as in the
// services. It returns the exit code.
func run(args []string, in, out, errOut *os.File) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{
		in: in, out: out, err: errOut, now: time.Now,
		inTerminal: isTerminal(in), outTerminal: isTerminal(out), errTerminal: isTerminal(errOut),
		json: slices.Contains(args, "--json"), // until flags are parsed, which may fail
	}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	command, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil, errors.Is(err, errRefused):
	case !a.running:
		err = usagef("%s; see %s --help", oneLine(err), command.CommandPath())
	case ctx.Err() != nil:
		err = interrupted(err)
	}
	return a.report(err)
}

// oneLine puts cobra's suggestions, which it gives a line each, behind what they
// are for.
func oneLine(err error) string {
	text, suggestions, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !ok {
		return text
	}
	return text + didYouMean(strings.Fields(suggestions))
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

const rootLong = `mqctl looks at the queue and repairs it: what is stuck, for which tenant, and why.

The configuration is that of the services: config/base.yaml if there is one, the files of --config or MQ_CONFIG,
and MQ_DSN over their mq.dsn. MQ_TENANTS is the list that --all-tenants means.

Names are data: put them into single quotes for the shell. One with anything unprintable in it is shown in double
quotes, as Go and JSON write it: "a\nb". A flag takes it back in that form; without a double quote in front a name is
taken as it is.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration, nothing was touched; 3 not found;
4 the person asked said no, nothing was changed.`

// suggested is up to how many letters a command may be wrong for the right one to
// be suggested.
const suggested = 2

// root puts the tree of commands together.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "mqctl", Short: "Look at the queue and repair it", Long: rootLong,
		Example:      "  mqctl doctor --all-tenants\n  mqctl lag --tenant acme",
		SilenceUsage: true, SilenceErrors: true, SuggestionsMinimumDistance: suggested,
		Version: thisVersion().String(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", a.json, "write one JSON document; errors as {\"error\": …} on standard error")
	f.BoolVar(&a.wide, "wide", false, "do not cut tables to the width of the terminal")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "end what the database does not answer; purging, publishing and redriving many have no end")
	// Declared for help and syntax only: mqfx finds it in the command line itself.
	f.String("config", "", "configuration `files`, separated by commas, later ones winning (default $MQ_CONFIG)")
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // it exists

	root.AddCommand(
		a.migrate(), a.validate(), a.doctor(),
		a.lag(), a.top(), a.topics(), a.groups(), a.offsets(), a.leases(), a.subscribers(), a.deadletters(),
		a.message(), a.deadletter(), a.pause(), a.resume(), a.group(), a.lease(), a.purge(),
		a.version(),
	)
	return strict(root)
}

// strict makes commands refuse arguments they have no use for, and those that
// only hold others a call without one.
func strict(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		strict(sub)
		if sub.Args == nil {
			sub.Args = noArgs
		}
		if sub.RunE == nil {
			sub.SuggestionsMinimumDistance = suggested
			sub.RunE = func(c *cobra.Command, _ []string) error {
				return fmt.Errorf("%s wants one of its commands: %s", c.CommandPath(), commandNames(c))
			}
		}
	}
	return c
}

// noArgs is [cobra.NoArgs] with the suggestions that cobra has for the first
// command alone.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), didYouMean(c.SuggestionsFor(args[0])))
}
