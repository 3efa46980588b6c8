package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/backend"
)

var deadLetterCases = []testCase{
	{"DeadLetterAfterMaxAttempts", deadLetterAfterAttempts},
	{"RejectDeadLettersAtOnce", deadLetterReject},
	{"DeadLetterDisabledDrops", deadLetterDisabled},
	{"DeadLetterSuffix", deadLetterSuffix},
	{"DeadLetterKeepsHostileErrors", deadLetterErrors},
	{"DeadLettersAreKeptPerGroup", deadLettersPerGroup},
	{"DeadLettersOfOneIDAreAllKept", deadLettersOfOneID},
	{"DeadLettersKeepTheirOrder", deadLetterOrder},
	{"DeadLetterOfADeadLetter", deadLetterTwice},
}

// undertake subscribes to the dead letters of the case's topic.
func (s *stage) undertake(p *process) *consumer {
	s.Helper()
	return s.subscribeTo(p, topic+backend.DefaultDeadLetterSuffix, backend.SubscriptionConfig{Group: "undertakers"})
}

// failure checks a dead letter against the message it was, and its failure.
func (d *delivery) failure(m backend.Message, want backend.Failure) {
	s := d.c.s
	s.Helper()
	got, ok := d.Failure()
	if !ok {
		s.Fatalf("no Failure with the dead letter %v", identityOf(d.Message()))
	}
	dead := d.Message()
	if dead.Tenant != m.Tenant || dead.PartitionKey != m.PartitionKey || string(dead.Payload) != string(m.Payload) ||
		dead.Metadata["id"] != m.Metadata["id"] || len(dead.Metadata) != len(m.Metadata) {
		s.Errorf("dead letter %+v of %+v", dead, m)
	}
	if got.FailedAt.IsZero() {
		s.Errorf("no time of failure with the dead letter %v", identityOf(dead))
	}
	want.OriginalTopic, want.OriginalID, want.OriginalOffset, want.FailedAt = m.Topic, m.ID, m.Offset, got.FailedAt
	if got != want {
		s.Errorf("failure %+v, want %+v", got, want)
	}
}

func deadLetterAfterAttempts(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.MaxAttempts = 3
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry})
	msgs := s.publish(p, messages(a, "key", 2)...)
	for i := range 3 {
		d := c.expect(msgs[0])
		d.must(d.nack(fmt.Errorf("failure %d", i+1)))
	}
	c.expect(msgs[1]).done() // the partition goes on
	u := s.undertake(p)
	d := u.next()
	d.failure(msgs[0], backend.Failure{Group: group, Attempts: 3, LastError: "failure 3"})
	if d.Attempt() != 1 {
		s.Errorf("attempt %d at a new dead letter", d.Attempt())
	}
	d.done()
	u.stop()
	s.finish(c, a)
}

func deadLetterReject(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: quickRetry})
	msgs := s.publish(p, messages(a, "key", 2)...)
	d := c.expect(msgs[0])
	d.must(d.nack(errTest))
	d = c.expect(msgs[0])
	d.must(d.reject(errors.New("no use")))
	d = c.expect(msgs[1])
	d.must(d.reject(nil))
	u := s.undertake(p)
	d = u.next()
	d.failure(msgs[0], backend.Failure{Group: group, Attempts: 2, LastError: "no use"})
	d.done()
	d = u.next()
	if f, ok := d.Failure(); !ok || f.Attempts != 1 {
		s.Errorf("failure of a reject without cause: %+v, %v", f, ok)
	}
	d.done()
	u.stop()
	s.finish(c, a)
}

func deadLetterDisabled(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.MaxAttempts = 1
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry, DeadLetter: backend.DeadLetterPolicy{Disabled: true}})
	msgs := s.publish(p, messages(a, "key", 3)...)
	d := c.expect(msgs[0])
	d.must(d.reject(errTest))
	d = c.expect(msgs[1])
	d.must(d.nack(errTest))
	c.expect(msgs[2]).done()
	s.finish(c, a) // no row on any topic
}

func deadLetterSuffix(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, DeadLetter: backend.DeadLetterPolicy{Suffix: "/the dead"}})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	d.must(d.reject(errTest))
	u := s.subscribeTo(p, topic+"/the dead", backend.SubscriptionConfig{Group: group})
	d = u.next()
	d.failure(m, backend.Failure{Group: group, Attempts: 1, LastError: errTest.Error()})
	d.done()
	u.stop()
	s.finish(c, a)
}

func deadLetterErrors(s *stage) {
	const limit = 16 << 10
	a := s.tenant("a")
	p := s.open(a)
	retry := quickRetry
	retry.MaxAttempts = 2
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Retry: retry})
	u := s.undertake(p)
	for i, text := range []string{
		strings.Repeat("long ", limit), strings.Repeat("😀", limit), "x" + strings.Repeat("é", limit),
		"invalid \xff\xfe UTF-8", strings.Repeat("\xff", 2*limit), "NUL \x00, '\"`\\%s?", strings.Repeat("'", limit), "",
	} {
		m := s.publish(p, message(a, "key", fmt.Sprintf("m%d", i)))[0]
		d := c.expect(m)
		d.must(d.nack(errors.New(text))) // stored with the delivery state
		d = c.expect(m)
		d.must(d.nack(errors.New(text)))
		d = u.next()
		f, ok := d.Failure()
		switch {
		case !ok || len(f.LastError) > limit || !utf8.ValidString(f.LastError):
			s.Errorf("last error of %.20q: %d bytes, valid UTF-8: %v", text, len(f.LastError), utf8.ValidString(f.LastError))
		case len(text) <= limit && utf8.ValidString(text) && f.LastError != text:
			s.Errorf("last error %.50q, want %.50q", f.LastError, text)
		case len(text) > limit && utf8.ValidString(text) && (len(f.LastError) < limit/2 || f.LastError[:100] != text[:100]):
			s.Errorf("last error %.50q of %d bytes, want the beginning of %.50q", f.LastError, len(f.LastError), text)
		}
		d.done()
	}
	u.stop()
	s.finish(c, a)
}

func deadLettersPerGroup(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	groups := []string{"first", "second", "third"}
	var consumers []*consumer
	for _, g := range groups {
		consumers = append(consumers, s.subscribe(p, backend.SubscriptionConfig{Group: g}))
	}
	m := s.publish(p, message(a, "key", "m"))[0]
	for i, c := range consumers[:2] {
		d := c.expect(m)
		d.must(d.reject(fmt.Errorf("by %s", groups[i])))
	}
	consumers[2].expect(m).done() // the others' failure is not its own
	u := s.undertake(p)
	var failed []string
	for range 2 {
		d := u.next()
		f, _ := d.Failure()
		failed = append(failed, f.Group)
		d.failure(m, backend.Failure{Group: f.Group, Attempts: 1, LastError: "by " + f.Group})
		d.done()
	}
	if slices.Sort(failed); !slices.Equal(failed, groups[:2]) {
		s.Errorf("dead letters of groups %q, want %q", failed, groups[:2])
	}
	u.stop()
	for _, c := range consumers[:2] {
		c.stop()
	}
	s.finish(consumers[2], a)
}

// deadLettersOfOneID publishes an id anew after its first life ended as a dead
// letter.
func deadLettersOfOneID(s *stage) {
	const lives = 3
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	var msgs []backend.Message
	for range lives {
		m := message(a, "key", "m")
		s.expect(m)
		s.eventually("the id is free again", func() bool {
			receipts, err := p.Publish(s.ctx, m)
			if err != nil {
				s.Fatal(err)
			}
			m.Offset = receipts[0].Offset
			return !receipts[0].Duplicate
		})
		d := c.expect(m)
		d.must(d.reject(errTest))
		msgs = append(msgs, m)
	}
	u := s.undertake(p)
	for _, m := range msgs {
		d := u.next()
		d.failure(m, backend.Failure{Group: group, Attempts: 1, LastError: errTest.Error()})
		d.done()
	}
	u.stop()
	s.finish(c, a)
}

func deadLetterOrder(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	msgs := s.publish(p, messages(a, "key", 10)...)
	for _, m := range msgs {
		d := c.expect(m)
		d.must(d.reject(errTest))
	}
	u := s.undertake(p)
	for _, m := range msgs {
		d := u.next()
		d.failure(m, backend.Failure{Group: group, Attempts: 1, LastError: errTest.Error()})
		d.done()
	}
	u.stop()
	s.finish(c, a)
}

func deadLetterTwice(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	m := s.publish(p, message(a, "key", "m"))[0]
	d := c.expect(m)
	d.must(d.reject(errTest))
	u := s.undertake(p)
	dead := u.next()
	dead.must(dead.reject(errors.New("nor here")))
	last := s.subscribeTo(p, topic+strings.Repeat(backend.DefaultDeadLetterSuffix, 2), backend.SubscriptionConfig{Group: group})
	d = last.next()
	// The failure is that of the topic it comes from.
	d.failure(dead.Message(), backend.Failure{Group: "undertakers", Attempts: 1, LastError: "nor here"})
	d.done()
	last.stop()
	u.stop()
	s.finish(c, a)
}
