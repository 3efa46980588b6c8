package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
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
	timeout time.Duration
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
	if err != nil && !a.running {
		err = usagef("%w; see %s --help", err, command.CommandPath())
	}
	return a.report(err)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

const rootLong = `mqctl looks at the queue and repairs it: what is stuck, for which tenant, and why.

The configuration is that of the services: config/base.yaml if there is one, the files of --config or MQ_CONFIG,
and MQ_DSN over their mq.dsn. MQ_TENANTS is the list that --all-tenants means.

A name with anything unprintable in it is shown in double quotes, as Go and JSON write it: "a\nb". A flag takes
it back in that form; without a double quote in front a name is taken as it is.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration, nothing was touched; 3 not found;
4 the person asked said no, nothing was changed.`

// root puts the tree of commands together.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "mqctl", Short: "Look at the queue and repair it", Long: rootLong,
		Example:      "  mqctl doctor --all-tenants\n  mqctl lag --tenant acme",
		SilenceUsage: true, SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", a.json, "write one JSON document; errors as {\"error\": …} on standard error")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "end what the database does not answer; purging, publishing and redriving many have no end")
	// Declared for help and syntax only: mqfx finds it in the command line itself.
	f.String("config", "", "configuration `files`, separated by commas, later ones winning (default $MQ_CONFIG)")
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml") // it exists

	root.AddCommand(
		a.migrate(), a.validate(), a.doctor(),
		a.lag(), a.top(), a.topics(), a.groups(), a.offsets(), a.leases(), a.subscribers(), a.deadletters(),
		a.message(), a.deadletter(), a.pause(), a.resume(), a.group(), a.lease(), a.purge(),
	)
	return strict(root)
}

// strict makes commands refuse arguments they have no use for, and those that
// only hold others a call without one.
func strict(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		strict(sub)
		if sub.Args == nil {
			sub.Args = cobra.NoArgs
		}
		if sub.RunE == nil {
			sub.RunE = func(c *cobra.Command, _ []string) error {
				return fmt.Errorf("%s wants one of its commands: %s", c.CommandPath(), commandNames(c))
			}
		}
	}
	return c
}
