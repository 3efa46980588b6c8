package operator

import (
	"context"
	"fmt"

	"github.com/tenantmq/tenantmq/tenants"
)

// maxFindings bounds those of a check that looks at many tenants.
const maxFindings = 50

// leases looks for partitions that an owner has left with work in them, and that
// nobody has taken since.
func (e *examination) leases(ctx context.Context, list []tenants.ID) {
	const check = "leases"
	n := 0
	for _, tenant := range list {
		stale, err := e.Leases(ctx, tenant, Page{StaleOnly: true, Limit: MaxLimit})
		if err != nil {
			e.blind(check, err, "see the check of the database")
			return
		}
		pending := make(map[pair][]Lease)
		var order []pair
		for _, l := range stale {
			of := pair{l.Topic, l.Group}
			if l.Pending {
				if pending[of] == nil {
					order = append(order, of)
				}
				pending[of] = append(pending[of], l)
			}
		}
		for _, of := range order {
			l := pending[of][0]
			if n++; n > maxFindings {
				continue
			}
			e.find(check, Warn, "see that subscribers of the group run, and Subscribers for whether they do; ReleaseStale frees what they do not take",
				"%d partitions of tenant %q, topic %q, group %q have work and a lease that has expired, such as %q of %q since %v ago",
				len(pending[of]), tenant, of.topic, of.group, l.PartitionKey, l.Owner, -l.ExpiresIn)
		}
	}
	e.summary(check, n, "no work is left behind an expired lease")
}

// groups looks for work that nobody does.
func (e *examination) groups(ctx context.Context, list []tenants.ID) {
	const check = "groups"
	n := 0
	for _, tenant := range list {
		groups, err := e.Groups(ctx, tenant, "")
		if err != nil {
			e.blind(check, err, "see the check of the database")
			return
		}
		for _, g := range groups {
			severity, why, remedy := Bad, "no live subscriber", "start its subscribers, or DropGroup if nobody needs it any more: messages are kept for it"
			switch {
			case g.Lag.Messages == 0:
				continue
			case g.Paused:
				severity, why, remedy = Warn, "been paused", "Resume it when what it was paused for is over"
			case g.Subscribers > 0:
				continue
			}
			if n++; n > maxFindings {
				continue
			}
			e.find(check, severity, remedy, "group %q of tenant %q, topic %q has %s, and %v messages pending, the oldest for %v",
				g.Group, tenant, g.Topic, why, Count{g.Lag.Messages, g.Lag.AtLeast}, g.Lag.Oldest)
		}
	}
	e.summary(check, n, "every group with work has live subscribers")
}

// summary tells what the findings of a check do not.
func (e *examination) summary(check string, n int, fine string) {
	switch {
	case n == 0:
		e.ok(check, "%s", fine)
	case n > maxFindings:
		e.find(check, Warn, "deal with these, then look again", "%s", fmt.Sprintf("there are %d more", n-maxFindings))
	}
}
