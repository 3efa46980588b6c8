package main

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/internal/operator"
)

type findingRow struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Found    string `json:"found"`
	Remedy   string `json:"remedy"`
}

func (a *app) doctor() *cobra.Command {
	var who scope
	c := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, and say what to do about it",
		Long: "Look for what is wrong with the server and with the work of tenants, and say what to do about it. It changes\n" +
			"nothing. Bad is what stops the queue or leaves somebody waiting in vain, and makes the exit code 1; warn is\n" +
			"what will be felt, or could not be looked at.",
		Example: "  mqctl doctor --all-tenants",
		RunE: a.brief(who.check, func(ctx context.Context, s *session) error {
			findings := s.Doctor(ctx, who.ids)
			rows := make([]findingRow, len(findings))
			bad := 0
			for i, f := range findings {
				rows[i] = findingRow{f.Check, f.Severity.String(), f.Found, f.Remedy}
				if f.Severity == operator.Bad {
					bad++
				}
			}
			if err := a.emit(rows, func() error { return a.diagnose(findings) }); err != nil {
				return err
			}
			if !who.all && findings[0].Severity == operator.OK { // the database is there
				if err := a.noteAbsent(ctx, s, &who.target); err != nil {
					return err
				}
			}
			if bad > 0 {
				return fmt.Errorf("findings that are bad: %d", bad)
			}
			return nil
		}),
	}
	who.flags(c)
	return c
}

// diagnose shows findings to a person, a remedy below what it is for.
func (a *app) diagnose(findings []operator.Finding) error {
	var rows []table.Row
	for _, f := range findings {
		rows = append(rows, table.Row{a.paint(f.Severity), f.Check, printable(f.Found)})
		if f.Remedy != "" {
			rows = append(rows, table.Row{"", "", "→ " + printable(f.Remedy)})
		}
	}
	return renderTable(a.out, 0, table.Row{"", "check", "found"}, rows)
}

// paint colours for a terminal only. The library heeds NO_COLOR.
func (a *app) paint(s operator.Severity) string {
	if !a.outTerminal {
		return s.String()
	}
	return [...]text.Colors{operator.OK: {text.FgGreen}, operator.Warn: {text.FgYellow}, operator.Bad: {text.FgRed, text.Bold}}[s].Sprint(s.String())
}
