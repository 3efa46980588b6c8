package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

type leaseRow struct {
	Tenant       string    `json:"tenant"`
	Topic        string    `json:"topic"`
	Group        string    `json:"group"`
	PartitionKey string    `json:"partition_key"`
	Owner        string    `json:"owner"`
	State        string    `json:"state"`
	Epoch        uint64    `json:"epoch"`
	Since        time.Time `json:"since"`
	ExpiresInMS  int64     `json:"expires_in_ms"`
	Claimed      uint64    `json:"claimed"`
	Suspect      uint64    `json:"suspect"`
	Pending      bool      `json:"pending"`
	Paused       bool      `json:"paused"`
	placed
}

func (a *app) leases() *cobra.Command {
	var p page
	l := &listing[leaseRow]{
		page:   &p,
		header: table.Row{"tenant", "topic", "group", "key", "state", "expires", "work", "paused", "since", "owner"},
		cells: func(r leaseRow) table.Row {
			return table.Row{
				quote(r.Tenant), quote(r.Topic), quote(r.Group), quote(r.PartitionKey), r.State, expiry(r), mark(r.Pending, "waits"),
				mark(r.Paused, "paused"),
				a.moment(r.Since), name(r.Owner),
			}
		},
		fetch: func(ctx context.Context, s *session, id tenants.ID) ([]leaseRow, error) {
			list, err := s.Leases(ctx, id, p.Page)
			rows := make([]leaseRow, len(list))
			for i, o := range list {
				rows[i] = leaseRow{
					string(o.Tenant), o.Topic, o.Group, o.PartitionKey, o.Owner, o.State.String(), o.Epoch, o.Since.UTC(),
					o.ExpiresIn.Milliseconds(), o.Claimed, o.Suspect, o.Pending, o.Paused,
					placed{cursor(o.Cursor())},
				}
			}
			return rows, err
		},
	}
	c := &cobra.Command{
		Use: "leases", Short: "List who works on which partition",
		Long: "List who works on which partition. A lease that is held has an owner at work; an expired one is of an\n" +
			"owner that has vanished: where work waits, somebody should have taken the partition over by now.",
		Example: "  mqctl leases --tenant acme --stale",
		RunE:    l.run(a),
	}
	l.flags(c, "topic", "group")
	c.Flags().BoolVar(&p.StaleOnly, "stale", false, "only those that have expired")
	return c
}

func expiry(r leaseRow) string {
	d := time.Duration(r.ExpiresInMS) * time.Millisecond
	switch r.State {
	case operator.Held.String():
		return "in " + age(d)
	case operator.Expired.String():
		return age(-d) + " ago"
	}
	return "-"
}

func (a *app) lease() *cobra.Command {
	c := &cobra.Command{
		Use: "lease", Short: "Work on leases",
		Example: "  mqctl lease release --tenant acme --topic orders --group billing --stale",
	}
	c.AddCommand(a.leaseRelease())
	return c
}

type releasedDoc struct {
	Tenant   string `json:"tenant"`
	Topic    string `json:"topic"`
	Group    string `json:"group"`
	Released int    `json:"released"`
}

func (a *app) leaseRelease() *cobra.Command {
	var t target
	var yes confirmation
	var stale bool
	check := func() error {
		if stale == (t.key != "") {
			return errors.New("give either --key KEY for one partition, or --stale for all whose lease has expired")
		}
		return nil
	}
	c := &cobra.Command{
		Use: "release", Short: "Take partitions from their owners",
		Long: "Take partitions from their owners: anybody may work on them at once, and what the owner still sends does not\n" +
			"count. What it may have handed over stays suspect, as after a crash, and is delivered again.",
		Example: "  mqctl lease release --tenant acme --topic orders --group billing --key customer-17",
		RunE: a.lasting(check, func(ctx context.Context, s *session) error {
			var plan string
			err := a.within(ctx, func(ctx context.Context) (err error) {
				plan, err = planRelease(ctx, s, &t)
				return err
			})
			if err != nil {
				return err
			}
			n := 1
			if plan == "" {
				a.note("no lease of %v has expired", &t)
				n = 0
			} else if err := yes.ask(ctx, a, plan); err != nil {
				return err
			}
			switch {
			case n == 0:
			case stale:
				n, err = s.ReleaseStale(ctx, t.tenantID(), t.topic, t.group)
			default:
				err = a.within(ctx, func(ctx context.Context) error {
					_, err := s.ReleaseLease(ctx, t.tenantID(), t.topic, t.group, t.key)
					return err
				})
			}
			if err != nil {
				return err
			}
			return a.emit(releasedDoc{t.tenant, t.topic, t.group, n}, func() error { return a.line("released %d: %v", n, &t) })
		}),
	}
	t.need(c, "tenant", "topic", "group")
	t.may(c, "key")
	c.Flags().Lookup("key").Usage = "the partition key"
	c.Flags().BoolVar(&stale, "stale", false, "all that have expired")
	yes.flag(c)
	return c
}

// planRelease is "" where there is nothing to be done.
func planRelease(ctx context.Context, s *session, t *target) (string, error) {
	e, err := s.Estimate(ctx, t.tenantID(), t.topic, operator.Scope{PartitionKey: t.key, Group: t.group})
	if err == nil && e.Leases.N == 0 {
		err = s.notFound(ctx, t)
	}
	switch {
	case err != nil:
		return "", err
	case t.key == "" && e.Stale.N == 0:
		return "", nil
	case t.key == "":
		return fmt.Sprintf("This releases the expired leases of %v: %v of %v.", t, e.Stale, e.Leases), nil
	case e.Leases.N == 0:
		return "", fmt.Errorf("%v: nobody has a lease, see mqctl leases: %w", t, backend.ErrNotFound)
	case e.Held.N > 0:
		return fmt.Sprintf("This takes %v from an owner that is at work: what it is doing there is done again by another.", t), nil
	case e.Stale.N > 0:
		return fmt.Sprintf("This releases the expired lease of %v, whose owner has vanished.", t), nil
	}
	return "", fmt.Errorf("%v: the lease was given back and is free, nothing to release: %w", t, backend.ErrNotFound)
}
