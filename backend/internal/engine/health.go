package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Health tells how the subscription is. It makes no store call.
func (s *Subscription) Health() backend.SubscriptionHealth {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := backend.SubscriptionHealth{
		Topic: s.o.Topic, Group: s.o.Config.Group, PollInterval: s.idlePoll(), TickedAt: s.listingAt, PolledAt: s.polledAt,
	}
	for _, t := range s.tenants {
		for _, p := range t.parts {
			if now.After(p.renewAt.Add(p.expires.Sub(p.renewAt) / 2)) {
				h.OverdueLeases++
			}
		}
	}
	return h
}

// Health lists the health of those subscriptions that do not stop: the loops of
// one that does have ended, and its handlers may take their time.
func Health(subs []*Subscription) []backend.SubscriptionHealth {
	var list []backend.SubscriptionHealth
	for _, s := range subs {
		select {
		case <-s.stopping:
		default:
			list = append(list, s.Health())
		}
	}
	slices.SortFunc(list, func(a, b backend.SubscriptionHealth) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	return list
}
