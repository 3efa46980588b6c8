package backendtest

import (
	"errors"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var healthCases = []testCase{
	{"HealthListsSubscriptions", healthLists},
}

func healthLists(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	begun := time.Now()
	second := s.subscribe(p, backend.SubscriptionConfig{Group: "second", PollInterval: 20 * time.Millisecond})
	first := s.subscribe(p, backend.SubscriptionConfig{Group: "first"})
	s.subscribe(s.open(a), backend.SubscriptionConfig{Group: "another process's"})
	health := func() backend.Health {
		ctx, cancel := s.timeout()
		defer cancel()
		h := p.Health(ctx)
		if h.Store != nil {
			s.Errorf("store: %v", h.Store)
		}
		return h
	}
	h := health()
	if len(h.Subscriptions) != 2 || h.Subscriptions[0].Group != "first" || h.Subscriptions[1].Group != "second" {
		s.Fatalf("subscriptions: %+v, want those of groups first and second", h.Subscriptions)
	}
	got := h.Subscriptions[1]
	if got.Topic != topic || got.PollInterval != 20*time.Millisecond || got.OverdueLeases != 0 ||
		got.TickedAt.Before(begun) || got.PolledAt.Before(begun) {
		s.Errorf("subscription: %+v", got)
	}
	s.eventually("it polls on", func() bool {
		now := health().Subscriptions[1]
		return now.TickedAt.After(got.TickedAt) && now.PolledAt.After(got.PolledAt)
	})
	first.stop()
	second.stop()
	if n := len(health().Subscriptions); n != 0 {
		s.Errorf("%d subscriptions after all were stopped", n)
	}
	p.close()
	if h := p.Health(s.ctx); !errors.Is(h.Store, backend.ErrClosed) {
		s.Errorf("store of a closed queue: %v, want ErrClosed", h.Store)
	}
}
