package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/tenants"
)

// scope is one tenant, or those of MQ_TENANTS: never all that the database has,
// which on a sharded one would ask every shard.
type scope struct {
	target
	all bool
	ids []tenants.ID // once checked
}

func (s *scope) flags(c *cobra.Command, narrow ...string) {
	s.may(c, append(narrow, "tenant")...)
	c.Flags().Lookup("tenant").Usage = "the tenant"
	c.Flags().BoolVar(&s.all, "all-tenants", false, "the tenants of MQ_TENANTS")
}

// check settles who is meant.
func (s *scope) check() (err error) {
	switch {
	case s.all && s.tenant != "":
		return errors.New("both --tenant and --all-tenants are given; give one of them")
	case s.all:
		s.ids, err = listed()
		return err
	case s.tenant == "":
		return errors.New("give --tenant NAME, or --all-tenants for those of MQ_TENANTS")
	}
	s.ids = []tenants.ID{s.tenantID()}
	return nil
}

// atOnce is how many tenants are looked at concurrently.
const atOnce = 4

// each calls f for several tenants, some at a time, and returns the results in
// the order of the tenants.
func each[T any](ctx context.Context, ids []tenants.ID, f func(context.Context, tenants.ID) (T, error)) ([]T, error) {
	results := make([]T, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, id := range ids {
		group.Go(func() (err error) {
			results[i], err = f(ctx, id)
			return err
		})
	}
	return results, group.Wait()
}
