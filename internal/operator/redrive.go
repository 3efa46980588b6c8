package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/time/rate"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// RedriveOptions of [Operator.RedriveMany].
type RedriveOptions struct {
	// Limit of dead letters. 0: all that are there when it begins.
	Limit int
	// PerSecond bounds the pace, so that the consumers keep up. 0: as fast as it
	// goes.
	PerSecond float64
	// Group that has failed them. "" for all.
	Group string
	// Force redrives also for groups that are not registered, which will not get
	// them until they are.
	Force bool
	// Progress is told after each how many there were. It is called by the calling
	// goroutine. Nil: nobody is.
	Progress func(done int)
}

// redrivePage is the number of dead letters put in order at a time.
const redrivePage = 10_000

// RedriveMany returns dead letters of a topic to where they failed, each as
// [mysql.Queue.Redrive] does: the oldest first, those left out that somebody
// else has redriven or deleted meanwhile, and those that fail while it runs. It
// returns how many. When it fails or is cancelled half way, what was redriven
// stays so, and the error says how many.
//
// Unless it is forced it redrives nothing, and returns [ErrGroupUnknown] in a
// [*GroupUnknownError], if one of the groups that failed them is not registered;
// even if only others are within the limit.
func (o *Operator) RedriveMany(ctx context.Context, tenant tenants.ID, topic string, opts RedriveOptions) (n int, err error) {
	if err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), opts.check()); err != nil {
		return 0, err
	}
	if err := o.redriveMany(ctx, tenant, topic, opts, &n); err != nil {
		return n, fmt.Errorf("redrive the dead letters of tenant %q, topic %q; %d are redriven and stay so: %w", tenant, topic, n, err)
	}
	return n, nil
}

func (r RedriveOptions) check() error {
	switch {
	case r.Limit < 0:
		return &backend.FieldError{Field: "limit", Value: strconv.Itoa(r.Limit), Rule: "want 0 for all, or more"}
	case !(r.PerSecond >= 0): // nor NaN
		return &backend.FieldError{Field: "per second", Value: fmt.Sprint(r.PerSecond), Rule: "want 0 for no bound, or more"}
	}
	return unless(r.Group, backend.CheckGroup)
}

func (o *Operator) redriveMany(ctx context.Context, tenant tenants.ID, topic string, opts RedriveOptions, n *int) error {
	if err := o.CheckSchema(ctx); err != nil {
		return err
	}
	if !opts.Force {
		destinations, err := o.Destinations(ctx, tenant, topic, opts.Group)
		if err != nil {
			return err
		}
		for _, d := range destinations {
			if err := d.check(tenant); err != nil {
				return err
			}
		}
	}
	pace := rate.Limit(opts.PerSecond)
	if pace == 0 {
		pace = rate.Inf
	}
	limiter := rate.NewLimiter(pace, 1)
	now, _, err := readOne(ctx, o.db, newQuery(stmtNowOf, string(tenant)), single[int64])
	if err != nil {
		return err
	}
	type row struct {
		key, id string
		offset  uint64
	}
	for after := uint64(0); ; {
		q := newQuery(stmtOldestDead, string(tenant), topic, now, after)
		if opts.Group != "" {
			q.add(ofFailed, opts.Group)
		}
		size := min(o.page, cmp.Or(opts.Limit, *n+o.page)-*n)
		page, err := read(ctx, o.db, q.add(oldestPage, size), func(r *row) []any { return []any{&r.key, &r.id, &r.offset} })
		if err != nil {
			return err
		}
		for _, r := range page {
			if err := limiter.Wait(ctx); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
			switch err := o.q.Redrive(ctx, tenant, topic, r.key, r.id); {
			case errors.Is(err, backend.ErrNotFound):
			case err != nil:
				return err
			default:
				*n++
				if opts.Progress != nil {
					opts.Progress(*n)
				}
			}
			after = r.offset
		}
		if len(page) < size || *n == opts.Limit {
			return nil
		}
	}
}
