package operator

import (
	"cmp"
	"context"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Scope narrows an estimate down.
type Scope struct {
	PartitionKey string // "" for all; leaves DeadLetters and the leases of others out
	Group        string // "" for all
	// CountTo is that of the Operator for this estimate. 0 for the same; 1 to
	// 1,000,000, which reads as many index entries of every kind, and for
	// DeadLetters as many rows.
	CountTo int
}

// Estimate is what there is for a destructive operation to work on, so that
// somebody can be asked before.
type Estimate struct {
	Messages    Count // what Purge removes
	DeadLetters Count // what RedriveMany returns; counted among the topic's first CountTo messages
	States      Count // delivery states, which Purge and DropGroup remove
	Leases      Count // which Purge, DropGroup and, where it is one, ReleaseLease end
	Held        Count // of those, the ones whose owners are at work
	Stale       Count // and those that ReleaseStale would release
	Groups      int   // registered
}

// Estimate counts what a topic of a tenant holds.
func (o *Operator) Estimate(ctx context.Context, tenant tenants.ID, topic string, s Scope) (Estimate, error) {
	err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), unless(s.PartitionKey, backend.CheckPartitionKey),
		unless(s.Group, backend.CheckGroup), checkCountTo(cmp.Or(s.CountTo, o.countTo())))
	if err != nil {
		return Estimate{}, err
	}
	s.CountTo = cmp.Or(s.CountTo, o.countTo())
	e, err := o.estimate(ctx, tenant, topic, s)
	return e, wrap("estimate", tenant, topic, err)
}

func (o *Operator) estimate(ctx context.Context, tenant tenants.ID, topic string, s Scope) (e Estimate, err error) {
	bound := s.CountTo
	if s.PartitionKey == "" {
		if e.Messages, err = o.countMessages(ctx, tenant, topic, bound); err != nil {
			return e, err
		}
		if e.DeadLetters, err = o.countDead(ctx, tenant, topic, s.Group, bound); err != nil {
			return e, err
		}
	} else {
		n, _, err := readOne(ctx, o.db, newQuery(stmtCountOfKey, string(tenant), topic, s.PartitionKey, bound+1), single[int])
		if err != nil {
			return e, err
		}
		e.Messages = count(n, bound)
	}
	registered, err := o.registrations(ctx, o.db, tenant, topic)
	if err != nil {
		return e, err
	}
	for _, r := range registered {
		if s.Group == "" || r.group == s.Group {
			e.Groups++
		}
	}
	groups, err := o.groupsWithRows(ctx, tenant, topic)
	if err != nil {
		return e, err
	}
	for _, group := range groups {
		if s.Group != "" && group != s.Group {
			continue
		}
		if err := o.estimateGroup(ctx, tenant, pair{topic, group}, s, &e); err != nil {
			return e, err
		}
	}
	return e, nil
}

// estimateGroup adds the rows of a group.
func (o *Operator) estimateGroup(ctx context.Context, tenant tenants.ID, of pair, s Scope, e *Estimate) error {
	bound, key := s.CountTo, s.PartitionKey
	q := newQuery(stmtCountStates, string(tenant), of.group, of.topic)
	if key != "" {
		q.add(ofKey, key)
	}
	n, _, err := readOne(ctx, o.db, q.add(countEnd, bound+1), single[int])
	if err != nil {
		return err
	}
	e.States = e.States.plus(count(n, bound), bound)
	if key != "" {
		leases, err := o.leasesOf(ctx, tenant, of, []string{key})
		one := Count{N: 1}
		for _, l := range leases {
			e.Leases = e.Leases.plus(one, bound)
			switch l.State {
			case Held:
				e.Held = e.Held.plus(one, bound)
			case Expired:
				e.Stale = e.Stale.plus(one, bound)
			}
		}
		return err
	}
	for condition, sum := range map[string]*Count{"": &e.Leases, ifHeld: &e.Held, ifStale: &e.Stale} {
		n, err := o.countLeases(ctx, tenant, of, condition, bound)
		if err != nil {
			return err
		}
		*sum = sum.plus(count(n, bound), bound)
	}
	return nil
}
