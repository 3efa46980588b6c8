package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	l.empty = func(ctx context.Context, s *session) (bool, error) { return a.noteElsewhere(ctx, s, &l.target) }
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

// noteElsewhere tells which topic the dead letters of a topic are on.
func (a *app) noteElsewhere(ctx context.Context, s *session, t *target) (bool, error) {
	if t.topic == "" {
		return false, nil
	}
	for _, suffix := range suffixes(s) {
		elsewhere := t.topic + suffix
		if backend.CheckTopic(elsewhere) != nil { // too long
			continue
		}
		list, err := s.DeadLetters(ctx, t.tenantID(), operator.Page{Topic: elsewhere, Limit: 1})
		if err != nil {
			return false, err
		}
		if len(list) > 0 {
			a.note("the dead letters of topic %s are on topic %s:\n  mqctl deadletters --tenant %s --topic %s",
				quote(t.topic), quote(elsewhere), operator.Quote(t.tenant), operator.Quote(elsewhere))
			return true, nil
		}
	}
	return false, nil
}

// shorten makes the first line of an error fit into a table; message show has all
// of it.
func shorten(s string) string {
	if s == "" {
		return "-"
	}
	s, _, more := strings.Cut(s, "\n")
	if r := []rune(s); len(r) > shownError {
		return quote(string(r[:shownError])) + ellipsis
	}
	if more {
		return quote(s) + ellipsis
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
		return nil
	}
	c := &cobra.Command{
		Use: "redrive", Short: "Return dead letters to where they failed, the oldest first",
		Long: "Return dead letters to where they failed, the oldest first, each for the group that failed it and with all\n" +
			"its attempts again. Mend the cause first, or they come back. What was redriven before a failure or an\n" +
			"interruption stays so, and the command can be repeated for the rest.",
		Example: "  mqctl deadletter redrive --tenant acme --topic orders_dlq --group billing --limit 10\n" +
			"  mqctl deadletter redrive --tenant acme --topic orders_dlq --rate 50 --yes",
		RunE: a.lasting(check, func(ctx context.Context, s *session) error {
			var plan string
			err := a.within(ctx, func(ctx context.Context) (err error) {
				plan, err = s.planRedrive(ctx, &t, opts)
				return err
			})
			if err != nil {
				return err
			}
			if plan != "" {
				if err := yes.ask(ctx, a, plan); err != nil {
					return err
				}
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
				a.note("there was none; this lists those of all topics:\n  mqctl deadletters --tenant %s", operator.Quote(t.tenant))
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
	c.Flags().BoolVar(&opts.Force, "force", false, "also for groups that are not registered, which get them only once they are")
	yes.flag(c)
	return c
}

// planRedrive is "" where there is nothing to be done.
func (s *session) planRedrive(ctx context.Context, t *target, opts operator.RedriveOptions) (string, error) {
	list, err := s.Destinations(ctx, t.tenantID(), t.topic, t.group)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", s.noDeadLetters(ctx, t)
	}
	all, to := 0, make([]string, len(list))
	for i, d := range list {
		all += d.Messages
		to[i] = fmt.Sprintf("%d to group %s of topic %s", d.Messages, quote(d.Group), quote(d.Topic))
		if !d.Registered && !opts.Force {
			return "", &operator.GroupUnknownError{Tenant: t.tenantID(), Destination: d}
		}
	}
	plan := fmt.Sprintf("This redrives the dead letters of %v: %d", t, all)
	if opts.Limit > 0 {
		plan += fmt.Sprintf(", at most %d of them", opts.Limit)
	}
	return plan + "; " + strings.Join(to, ", ") + ".", nil
}

// noDeadLetters tells a topic or a group that does not exist from one that has no
// dead letters. The group is that of the topic they have failed on, whatever that
// is called.
func (s *session) noDeadLetters(ctx context.Context, t *target) error {
	if err := s.notFound(ctx, &target{tenant: t.tenant, topic: t.topic}); err != nil || t.group == "" {
		return err
	}
	topics, err := s.topicNames(ctx, t.tenantID())
	if err != nil {
		return err
	}
	for _, topic := range topics {
		groups, err := s.groupsOf(ctx, &target{tenant: t.tenant, topic: topic})
		if err != nil || slices.ContainsFunc(groups, func(g groupAt) bool { return g.name == t.group }) {
			return err
		}
	}
	return fmt.Errorf("tenant %s has no group %s on any topic, and %s no dead letters of it: %w",
		quote(t.tenant), quote(t.group), quote(t.topic), backend.ErrNotFound)
}
