package backendtest

import (
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var tenantCases = []testCase{
	{"SubscribersGetTheirTenantsOnly", tenantIsolation},
	{"QuietTenantDoesNotWaitForABacklog", quietTenant},
	{"ABusyTenantDoesNotTakeAllHandlers", reserveOfHandlers},
	{"TenantsShareEqually", func(s *stage) { tenantShares(s, 1) }},
	{"TenantWeightsAreKept", func(s *stage) { tenantShares(s, 3) }},
}

func tenantIsolation(s *stage) {
	a, b, c := s.tenant("a"), s.tenant("b"), s.tenant("b2") // one name begins like another
	publisher := s.open(a)                                  // a publisher need not list its tenants
	var msgs []backend.Message
	for _, t := range []tenants.ID{a, b, c} {
		msgs = append(msgs, messages(t, "key", 5)...)
	}
	s.publish(publisher, msgs...)
	first := s.subscribe(s.open(a), backend.SubscriptionConfig{Group: group}).ackAll()
	second := s.subscribe(s.open(b), backend.SubscriptionConfig{Group: group}).ackAll()
	s.within("the listed tenants' are acked", acks(msgs[:10]))
	s.pass(s.open(c))
	l := s.history.log()
	s.faultless(
		l.only(by(first.name)).exactlyOnce(msgs[:5]), l.only(by(second.name)).exactlyOnce(msgs[5:10]),
		l.only(onTopic(topic), in(c)).exactlyOnce(nil),
	)
	third := s.subscribe(s.open(a, b, c), backend.SubscriptionConfig{Group: group})
	for _, m := range msgs[10:] {
		third.expect(m).done()
	}
	for _, c := range []*consumer{first, second} {
		c.stop()
	}
	s.finish(third, a, b, c)
}

// quietTenant looks at the place in the sequence of deliveries: a quiet
// tenant's message comes soon, whatever another has waiting.
func quietTenant(s *stage) {
	const backlog, keys = 3000, 10
	noisy, quiet := s.tenant("noisy"), s.tenant("quiet")
	p := s.open(noisy, quiet)
	var batch []backend.Message
	for i := range backlog {
		batch = append(batch, message(noisy, fmt.Sprintf("key%d", i%keys), fmt.Sprint(i)))
	}
	s.publish(p, batch...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, MaxInFlight: 8}).ackAll()
	loud := func(l timeline) int { return len(l.only(is(delivered), in(noisy))) }
	for i := range 5 {
		s.within("the backlog flows", count(loud(s.history.log())+backlog/20, is(delivered), in(noisy)))
		m := s.publish(p, message(quiet, fmt.Sprintf("key%d", i%2), fmt.Sprint(i)))[0]
		published := loud(s.history.log())
		s.within("the quiet tenant's message is delivered", count(1, is(delivered), of(m)))
		l := s.history.log()
		before := 0
		for _, e := range l {
			if e.verb == delivered && identityOf(e.msg) == identityOf(m) {
				break
			}
			if e.verb == delivered {
				before++
			}
		}
		if waited := before - published; waited > backlog/6 {
			s.Errorf("quiet message %d came behind %d of the backlog", i, waited)
		}
	}
	s.within("all acked", acks(batch))
	s.faultless(s.history.log().only(in(noisy)).exactlyOnce(batch), s.history.log().inOrder(backend.Strict))
	s.finish(c, noisy, quiet)
}

// reserveOfHandlers has a tenant whose handlers do not come to an end. Another's
// message is delivered all the same.
func reserveOfHandlers(s *stage) {
	const limit, reserve = 32, 32 / 8
	noisy, quiet := s.tenant("noisy"), s.tenant("quiet")
	p := s.open(noisy, quiet)
	var msgs []backend.Message
	for k := range 2 * limit {
		msgs = append(msgs, message(noisy, fmt.Sprintf("key%d", k), "m"))
	}
	msgs = s.publish(p, msgs...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, MaxInFlight: limit})
	var held []*delivery
	for range limit - reserve {
		held = append(held, c.next())
	}
	c.nothing()
	for i := range reserve {
		msgs = append(msgs, s.publish(p, message(quiet, fmt.Sprintf("key%d", i), "m"))...)
		held = append(held, c.expect(msgs[len(msgs)-1]))
	}
	s.pass(p)
	c.nothing() // that is all of them
	s.each(held, (*delivery).done)
	c.ackAll()
	s.within("all acked", acks(msgs))
	s.faultless(s.history.log().only(onTopic(topic)).exactlyOnce(msgs))
	s.finish(c, noisy, quiet)
}

// tenantShares gives two tenants the same backlog, and one of them a weight.
func tenantShares(s *stage, weight int) {
	const backlog, rounds = 1200, 20
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	var batch []backend.Message
	for i := range backlog {
		batch = append(batch, message(a, fmt.Sprintf("key%d", i%8), fmt.Sprint(i)), message(b, fmt.Sprintf("key%d", i%8), fmt.Sprint(i)))
	}
	s.publish(p, batch...)
	// Handlers that are all taken before any is done are what there is to share.
	// An eighth is kept for tenants that have less than that.
	const handlers = 40
	const window = rounds * (handlers - handlers/8)
	c := s.subscribe(p, backend.SubscriptionConfig{
		Group: group, Ordering: backend.Relaxed, MaxInFlight: handlers, TenantWeights: map[tenants.ID]int{b: weight},
	})
	counts := make(map[tenants.ID]int)
	for range rounds {
		s.pass(p) // on a busy machine a tenant may not have been read on yet
		var out []*delivery
		for range handlers - handlers/8 {
			d := c.next()
			counts[d.Message().Tenant]++
			out = append(out, d)
		}
		s.each(out, (*delivery).done)
	}
	// A third off either way leaves room for what was fetched at the start.
	want := window / (1 + weight)
	if n := counts[a]; n < want*2/3 || n > want*4/3 {
		s.Errorf("with weights 1:%d the tenants got %d:%d of the first %d deliveries, want about %d:%d",
			weight, counts[a], counts[b], window, want, window-want)
	}
	c.ackAll()
	s.within("all acked", acks(batch))
	s.finish(c, a, b)
}
