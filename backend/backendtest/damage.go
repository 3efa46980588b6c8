package backendtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var damageCases = []testCase{
	{"MessageDeletedWhileWaiting", deletedWaiting},
	{"MessageDeletedWhileOut", deletedOut},
	{"MessageDeletedWhilePostponed", deletedPostponed},
}

// deletedWaiting deletes what was fetched, or is to be.
func deletedWaiting(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, quick(backend.Strict))
	msgs := s.publish(p, messages(a, "key", 6)...)
	first := c.expect(msgs[0])
	s.store.Delete(s.T, msgs[2])
	s.store.Delete(s.T, msgs[5])
	first.done()
	for {
		d := c.next() // the deleted may have been fetched before
		d.done()
		if d.Message().ID == msgs[4].ID {
			break
		}
	}
	kept := []backend.Message{msgs[0], msgs[1], msgs[3], msgs[4]}
	c.ackAll()
	last := s.publish(p, message(a, "key", "last"))[0]
	s.within("all that were not deleted", acks(append(kept, last)))
	s.faultless(s.history.log().inOrder(backend.Strict))
	s.drained(a)
}

// deletedOut deletes messages while handlers have them.
func deletedOut(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, quick(backend.Strict))
	for i, settle := range []func(*delivery) error{
		func(d *delivery) error { return d.ack() },
		func(d *delivery) error { return d.nack(errTest) },
		func(d *delivery) error { return d.postpone(time.Millisecond) },
		func(d *delivery) error { return d.reject(errors.New("by the handler")) },
	} {
		msgs := s.publish(p, messages(a, fmt.Sprintf("key%d", i), 2)...)
		d := c.expect(msgs[0])
		s.store.Delete(s.T, msgs[0])
		d.must(settle(d))
		// It may come again from memory; the one behind it comes in any case.
		for d = c.next(); d.Message().ID != msgs[1].ID; d = c.next() {
			d.done()
		}
		d.done()
	}
	u := s.undertake(p).ackAll() // the rejected one is dead-lettered all the same
	s.within("the rejected", count(1, by(u.name), is(acked)))
	s.drained(a)
}

// deletedPostponed deletes the message that a partition waits for.
func deletedPostponed(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, quick(backend.Strict))
	msgs := s.publish(p, messages(a, "key", 2)...)
	d := c.expect(msgs[0])
	d.must(d.postpone(200 * time.Millisecond))
	s.store.Delete(s.T, msgs[0])
	for d = c.next(); d.Message().ID != msgs[1].ID; d = c.next() {
		d.done()
	}
	d.done()
	s.finish(c, a)
}
