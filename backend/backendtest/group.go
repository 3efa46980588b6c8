package backendtest

import (
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

var groupCases = []testCase{
	{"EveryGroupGetsEverything", groupsIndependent},
	{"GroupJoiningLateFromTheEarliest", groupEarliest},
	{"GroupJoiningLateFromTheLatest", groupLatest},
	{"GroupAwayKeepsItsMessages", groupAway},
	{"DroppedGroupFreesItsMessages", groupDropped},
	{"SubscribersOfOneNameAreTwo", groupOneName},
	{"SubscribersOfOneProcessShare", groupOneProcess},
}

// groupsIndependent has one group fail while the others go on.
func groupsIndependent(s *stage) {
	a := s.tenant("a")
	p, other := s.open(a), s.open(a)
	failing := s.subscribe(p, backend.SubscriptionConfig{Group: "failing", Retry: backend.RetryPolicy{InitialBackoff: never, MaxBackoff: never}})
	strict := s.subscribe(p, backend.SubscriptionConfig{Group: "strict"}).ackAll()
	relaxed := s.subscribe(other, backend.SubscriptionConfig{Group: "relaxed", Ordering: backend.Relaxed}).ackAll()
	msgs := s.publish(p, messages(a, "key", 30)...)
	d := failing.expect(msgs[0])
	d.must(d.nack(errTest))
	for _, c := range []*consumer{strict, relaxed} {
		s.within("all acked by "+c.name, acks(msgs, by(c.name)))
		l := s.history.log().only(by(c.name))
		s.faultless(l.exactlyOnce(msgs), l.attemptsIn(1), l.inOrder(backend.Strict))
	}
	failing.nothing()
	failing.stop()
}

func groupEarliest(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	early := s.publish(p, append(messages(a, "key", 5), messages(b, "key", 5)...)...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	late := s.publish(p, message(a, "key", "late"), message(b, "other", "late"))
	s.within("all acked", acks(append(early, late...)))
	s.faultless(s.history.log().exactlyOnce(append(early, late...)))
	s.finish(c, a, b)
}

func groupLatest(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	cfg := backend.SubscriptionConfig{Group: "late", Start: backend.Latest}
	e := s.subscribe(p, backend.SubscriptionConfig{Group: "early"})
	e.stop()
	early := s.publish(p, append(messages(a, "key1", 5), messages(a, "key2", 5)...)...)
	c := s.subscribe(p, cfg)
	s.pass(p)
	c.nothing()
	var later []backend.Message
	for i := range 3 {
		// In partitions with and without earlier messages.
		later = append(later, s.publish(p, message(a, fmt.Sprintf("key%d", i+1), "later"))...)
		c.expect(later[i]).done()
	}
	c.stop()
	// The position counts for the first subscription only.
	later = append(later, s.publish(p, message(a, "key1", "while away"), message(a, "key4", "while away"))...)
	c = s.subscribe(p, cfg)
	c.next().done()
	c.next().done()
	s.faultless(s.history.log().only(onTopic(topic)).exactlyOnce(later))

	// The early messages are there for the group that waits for them.
	e = s.subscribe(p, backend.SubscriptionConfig{Group: "early"}).ackAll()
	s.within("all acked by a group that begins at the earliest", acks(append(early, later...), by(e.name)))
	e.stop()
	s.finish(c, a)
}

func groupAway(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	home := s.subscribe(p, backend.SubscriptionConfig{Group: "home"}).ackAll()
	away := s.subscribe(p, backend.SubscriptionConfig{Group: "away"})
	seen := s.publish(p, message(a, "key", "seen"))[0]
	away.expect(seen).done()
	away.stop()

	msgs := s.publish(p, append(messages(a, "key", 10), messages(b, "other", 10)...)...)
	s.within("all acked by the group at home", acks(append(msgs, seen), by(home.name)))
	s.pass(p)
	home.stop()

	away = s.subscribe(s.open(a, b), backend.SubscriptionConfig{Group: "away"}).ackAll()
	s.within("all acked by the group that was away", acks(msgs, by(away.name)))
	l := s.history.log().only(by(away.name))
	s.faultless(l.exactlyOnce(msgs), l.inOrder(backend.Strict), l.attemptsIn(1))
	s.finish(away, a, b)
}

func groupDropped(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	home := s.subscribe(p, backend.SubscriptionConfig{Group: "home"}).ackAll()
	away := s.subscribe(p, backend.SubscriptionConfig{Group: "away"})
	d := away.expect(s.publish(p, message(a, "failed", "m"))[0])
	d.must(d.nack(errTest)) // leaves delivery state
	away.stop()
	msgs := s.publish(p, messages(a, "key", 10)...)
	s.within("all acked by the group at home", acks(msgs, by(home.name)))
	s.pass(p)
	total := 0
	for _, n := range s.store.Rows(s.T, a) {
		total += n
	}
	if total < len(msgs) {
		s.Errorf("%d rows left of %d messages that a group has not seen", total, len(msgs))
	}

	if err := p.DropGroup(s.ctx, a, topic, "nobody"); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("DropGroup of an unknown group: %v, want ErrNotFound", err)
	}
	if err := p.DropGroup(s.ctx, a, topic, "away"); err != nil {
		s.Fatal(err)
	}
	if err := p.DropGroup(s.ctx, a, topic, "away"); !errors.Is(err, backend.ErrNotFound) {
		s.Errorf("second DropGroup: %v, want ErrNotFound", err)
	}
	s.drained(a)
	home.stop()

	// Whoever comes back is new.
	away = s.subscribe(p, backend.SubscriptionConfig{Group: "away"})
	away.expect(s.publish(p, message(a, "key", "new"))[0]).done()
	away.stop()
}

// groupOneName has two processes call their subscriber the same.
func groupOneName(s *stage) {
	a := s.tenant("a")
	cfg := backend.SubscriptionConfig{Group: group, SubscriberName: "same"}
	s.share(a, []*process{s.open(a), s.open(a)}, cfg)
}

func groupOneProcess(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	s.share(a, []*process{p, p}, backend.SubscriptionConfig{Group: group})
}

// share consumes with one subscription in each process.
func (s *stage) share(a tenants.ID, processes []*process, cfg backend.SubscriptionConfig) {
	s.Helper()
	var msgs []backend.Message
	for i := range 20 {
		msgs = append(msgs, messages(a, fmt.Sprintf("key%02d", i), 10)...)
	}
	msgs = s.publish(processes[0], msgs...)
	for _, p := range processes {
		s.subscribe(p, cfg).ackAll()
	}
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.inOrder(backend.Strict), l.oneAtATime(), l.attemptsIn(1))
	s.drained(a)
}
