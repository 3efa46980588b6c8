package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

type failure struct {
	OriginalTopic  string    `json:"original_topic"`
	OriginalID     string    `json:"original_id"`
	OriginalOffset uint64    `json:"original_offset"`
	Group          string    `json:"group"`
	Attempts       int       `json:"attempts"`
	LastError      string    `json:"last_error"`
	FailedAt       time.Time `json:"failed_at"`
}

func newFailure(f backend.Failure) failure {
	f.FailedAt = f.FailedAt.UTC()
	return failure(f)
}

type deadLetterRow struct {
	Tenant       string  `json:"tenant"`
	Topic        string  `json:"topic"`
	PartitionKey string  `json:"partition_key"`
	ID           string  `json:"id"`
	Offset       uint64  `json:"offset"`
	Failure      failure `json:"failure"`
	placed
}

// shownError is how much of a last error a table has room for, in characters.
const shownError = 60

func (a *app) deadletters() *cobra.Command {
	var p page
	l := &listing[deadLetterRow]{
		page:   &p,
		header: table.Row{"tenant", "topic", "key", "id", "group", "attempts", "failed", "last error"},
		cells: func(r deadLetterRow) table.Row {
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.PartitionKey), quote(r.ID), quote(r.Failure.Group), r.Failure.Attempts,
				a.moment(r.Failure.FailedAt), shorten(r.Failure.LastError),
			}
		},
		fetch: func(ctx context.Context, s *session, id tenants.ID) ([]deadLetterRow, error) {
			list, err := s.DeadLetters(ctx, id, p.Page)
			rows := make([]deadLetterRow, len(list))
			for i, d := range list {
				rows[i] = deadLetterRow{
					string(d.Tenant), d.Topic, d.PartitionKey, d.ID, d.Offset, newFailure(d.Failure), placed{cursor(d.Cursor())},
				}
			}
			return rows, err
		},
	}
	c := &cobra.Command{
		Use: "deadletters", Short: "List the messages that groups have given up, and why",
		Long: "List the messages that groups have given up, and why: of one dead-letter topic, or of all that have any\n" +
			"among their first 100 messages.",
		Example: "  mqctl deadletters --tenant acme --topic orders_dlq",
		RunE:    l.run(a),
	}
	l.flags(c, "topic")
	return c
}

// shorten makes an error fit into a table; message show has all of it.
func shorten(s string) string {
	if s == "" {
		return "-"
	}
	if r := []rune(s); len(r) > shownError {
		return quote(string(r[:shownError])) + "…"
	}
	return quote(s)
}

func (a *app) deadletter() *cobra.Command {
	c := &cobra.Command{
		Use: "deadletter", Short: "Work on dead letters, many at once",
		Example: "  mqctl deadletter redrive --tenant acme --topic orders_dlq --rate 50",
	}
	c.AddCommand(a.deadletterRedrive())
	return c
}

type redrivenDoc struct {
	Tenant   string `json:"tenant"`
	Topic    string `json:"topic"`
	Redriven int    `json:"redriven"`
}

func (a *app) deadletterRedrive() *cobra.Command {
	var t target
	var yes confirmation
	var opts operator.RedriveOptions
	check := func() error {
		switch {
		case opts.Limit < 0:
			return fmt.Errorf("--limit %d: want 0 for all, or more", opts.Limit)
		case !(opts.PerSecond >= 0): // nor NaN
			return fmt.Errorf("--rate %v: want 0 for no bound, or more", opts.PerSecond)
		}
		return yes.check(a)
	}
	c := &cobra.Command{
		Use: "redrive", Short: "Return dead letters to where they failed, the oldest first",
		Long: "Return dead letters to where they failed, the oldest first, each for the group that failed it and with all\n" +
			"its attempts again. Mend the cause first, or they come back. What was redriven before a failure or an\n" +
			"interruption stays so, and the command can be repeated for the rest.",
		Example: "  mqctl deadletter redrive --tenant acme --topic orders_dlq --group billing --limit 10\n" +
			"  mqctl deadletter redrive --tenant acme --topic orders_dlq --rate 50 --yes",
		RunE: a.lasting(check, func(ctx context.Context, s *session) error {
			var e operator.Estimate
			err := a.within(ctx, func(ctx context.Context) (err error) {
				e, err = s.Estimate(ctx, t.tenantID(), t.topic, operator.Scope{Group: t.group})
				return err
			})
			if err != nil {
				return err
			}
			plan := fmt.Sprintf("This redrives the dead letters of %v: %v", &t, e.DeadLetters)
			if opts.Limit > 0 {
				plan += fmt.Sprintf(", at most %d of them", opts.Limit)
			}
			if err := yes.ask(ctx, a, plan+"."); err != nil {
				return err
			}
			opts.Group = t.group
			progress := a.progress()
			opts.Progress = func(n int) { progress.show("%d redriven", n) }
			n, err := s.RedriveMany(ctx, t.tenantID(), t.topic, opts)
			progress.end()
			if err != nil {
				return err
			}
			if n == 0 {
				a.note("there was none; mqctl deadletters --tenant %s lists those of all topics", quote(t.tenant))
			}
			return a.emit(redrivenDoc{t.tenant, t.topic, n}, func() error { return a.line("redriven %d: %v", n, &t) })
		}),
	}
	t.need(c, "tenant", "topic")
	c.Flags().Lookup("topic").Usage = "the dead-letter topic"
	t.may(c, "group")
	c.Flags().Lookup("group").Usage = "only those that this consumer group has failed"
	c.Flags().IntVar(&opts.Limit, "limit", 0, "redrive at most so many; 0 for all that are there now")
	c.Flags().Float64Var(&opts.PerSecond, "rate", 0, "redrive so many a second, so that consumers keep up; 0 for no bound")
	yes.flag(c)
	return c
}
