package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// confirmation is asked for before something is done that cannot be undone.
type confirmation struct{ given bool }

func (c *confirmation) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.given, "yes", false, "do not ask; required without a terminal")
}

// ask shows what is going to be done and waits for the answer. Where nobody can be
// asked it refuses, and the plan is in the error: somebody is about to add --yes.
func (c *confirmation) ask(ctx context.Context, a *app, plan string) error {
	switch {
	case c.given:
		a.note("%s", plan)
		return nil
	case !a.inTerminal || !a.errTerminal:
		return usagef("%s\nNobody can be asked without a terminal, and nothing was changed: repeat it with --yes", plan)
	}
	fmt.Fprintf(a.err, "%s\nGo on? (yes/no) ", printable(plan))
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted: it ends with the process at the latest
		line, _ := bufio.NewReader(a.in).ReadString('\n') // no answer is a no
		answer <- line
	}()
	select {
	case line := <-answer:
		if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))) {
			return nil
		}
		return fmt.Errorf("the answer was not yes; %w", errRefused)
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return fmt.Errorf("interrupted; %w", errRefused)
	}
}
