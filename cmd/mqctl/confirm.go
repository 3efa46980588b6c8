package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// confirmation is asked for before something is destroyed.
type confirmation struct{ given bool }

func (c *confirmation) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.given, "yes", false, "do not ask; required without a terminal")
}

// check refuses what nobody could be asked about, before anything is connected to.
func (c *confirmation) check(a *app) error {
	if c.given || a.inTerminal && a.errTerminal {
		return nil
	}
	return errors.New("this destroys something, and without a terminal nobody can be asked; repeat it with --yes")
}

// ask shows what is going to be done and waits for the answer.
func (c *confirmation) ask(ctx context.Context, a *app, plan string) error {
	if c.given {
		a.note("%s", plan)
		return nil
	}
	fmt.Fprintf(a.err, "%s\nGo on? (yes/no) ", plan)
	answer := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted: it ends with the process at the latest
		line, _ := bufio.NewReader(a.in).ReadString('\n') // no answer is a no
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
	}
	return errRefused
}
