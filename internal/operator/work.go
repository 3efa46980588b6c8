package operator

import (
	"context"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// maxLagAge is the age of a pending message that will be felt.
const maxLagAge = 10 * time.Minute

// leases looks for partitions that an owner has left with work in them, and that
// nobody has taken since.
func (e *examination) leases(ctx context.Context, list []tenants.ID) {
	s := several{examination: e, check: "leases"}
	for _, tenant := range list {
		stale, err := e.Leases(ctx, tenant, Page{StaleOnly: true, Limit: MaxLimit})
		if err != nil {
			e.blind(s.check, err, "see the check of the database")
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
			names := []string{"tenant", string(tenant), "topic", of.topic, "group", of.group}
			s.find(Warn, "see whether subscribers of the group run: "+mqctl("subscribers", names...)+"; free what they do not take: "+
				mqctl("lease release --stale", names...),
				"%s with work and an expired lease: tenant %q, topic %q, group %q, such as %q of %q since %v ago",
				words(len(pending[of]), "partition"), tenant, of.topic, of.group, l.PartitionKey, l.Owner, -l.ExpiresIn)
		}
	}
	s.end("no work is left behind an expired lease")
}

// groups looks for work that nobody does.
func (e *examination) groups() {
	s := several{examination: e, check: "groups"}
	for _, g := range e.known.groups {
		names := []string{"tenant", string(g.Tenant), "topic", g.Topic, "group", g.Group}
		severity, why := Bad, "no live subscriber"
		remedy := "start its subscribers, or if nobody needs it any more, since messages are kept for it: " + mqctl("group drop", names...)
		switch {
		case g.Lag.Messages == 0:
			continue
		case g.Paused:
			severity, why, remedy = Warn, "been paused", "when what it was paused for is over: "+mqctl("resume", names...)
		case g.Subscribers > 0:
			continue
		}
		s.find(severity, remedy, "group %q of tenant %q, topic %q has %s, and %s pending, the oldest for %v",
			g.Group, g.Tenant, g.Topic, why, Count{g.Lag.Messages, g.Lag.AtLeast}.Of("message"), g.Lag.Oldest)
	}
	s.end("every group with work has live subscribers")
}

// lag looks for groups whose subscribers are there and do not keep up.
func (e *examination) lag() {
	s := several{examination: e, check: "lag"}
	for _, g := range e.known.groups {
		if g.Paused || g.Subscribers == 0 || g.Lag.Oldest < e.lagAge {
			continue
		}
		s.find(Warn, "see which partitions: "+mqctl("offsets", "tenant", string(g.Tenant), "topic", g.Topic, "group", g.Group)+
			"; if all of them move and none fails, more or faster subscribers",
			"group %q of tenant %q, topic %q has %s pending, the oldest for %v",
			g.Group, g.Tenant, g.Topic, Count{g.Lag.Messages, g.Lag.AtLeast}.Of("message"), g.Lag.Oldest)
	}
	s.end("no message that a live group waits for is older than " + e.lagAge.String())
}

// deadLetters tells what groups have given up.
func (e *examination) deadLetters(ctx context.Context) {
	s := several{examination: e, check: "dead letters"}
	for _, t := range e.known.topics {
		if !t.dead {
			continue
		}
		n, err := e.countDead(ctx, t.tenant, t.topic, "", e.countTo())
		if err != nil {
			e.blind(s.check, err, "see the check of the database")
			return
		}
		list, err := e.DeadLetters(ctx, t.tenant, Page{Topic: t.topic, Limit: 1})
		if err != nil {
			e.blind(s.check, err, "see the check of the database")
			return
		}
		if len(list) == 0 {
			continue // redriven meanwhile
		}
		d, names := list[0], []string{"tenant", string(t.tenant), "topic", t.topic}
		s.find(Warn, "see why: "+mqctl("deadletters", names...)+"; mend the cause, then "+mqctl("deadletter redrive", names...)+" or "+mqctl("purge", names...),
			"topic %q of tenant %q holds %s, such as %q of partition %q, which group %q gave up after %s: %q",
			t.topic, t.tenant, n.Of("dead letter"), d.ID, d.PartitionKey, d.Group, words(d.Attempts, "attempt"), firstLine(d.LastError))
	}
	s.end("there are none")
}

// unread looks for messages that nobody will ever delete.
func (e *examination) unread() {
	s := several{examination: e, check: "topics"}
	for _, t := range e.known.topics {
		if t.dead || len(t.groups) > 0 {
			continue
		}
		s.find(Warn, "start a subscriber if one is missing; if the name is mistyped, or the last group was dropped: "+
			mqctl("purge", "tenant", string(t.tenant), "topic", t.topic),
			"topic %q of tenant %q has messages, and no group is registered for it: they are kept for ever", t.topic, t.tenant)
	}
	s.end("every topic with messages has groups")
}

// redriven looks for messages that go to a group which is not there.
func (e *examination) redriven(ctx context.Context) {
	s := several{examination: e, check: "redriven"}
	type row struct {
		group   string
		n       int
		key, id string
	}
	for _, t := range e.known.topics {
		rows, err := read(ctx, e.db, newQuery(stmtTargets, string(t.tenant), t.topic, lagScan), func(r *row) []any { return []any{&r.group, &r.n, &r.key, &r.id} })
		if err != nil {
			e.blind(s.check, wrap("look for redriven messages", t.tenant, t.topic, err), "see the check of the database")
			return
		}
		for _, r := range rows {
			if isRegistered(t.groups, r.group) {
				continue
			}
			s.find(Warn, "start a subscriber of the group, or delete what nobody needs: "+
				mqctl("message delete", "tenant", string(t.tenant), "topic", t.topic, "key", r.key, "id", r.id),
				"%s of tenant %q, topic %q for group %q alone, which is not registered, such as %q of partition %q",
				words(r.n, "message"), t.tenant, t.topic, r.group, r.id, r.key)
		}
	}
	s.end("no message waits for a group that is not registered")
}
