package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

var publishCases = []testCase{
	{"PublishReturnsReceiptsInOrder", publishReceipts},
	{"PublishRecognisesARepeat", publishRepeat},
	{"PublishRecognisesARepeatInOneBatch", publishRepeatInBatch},
	{"PublishRecognisesConcurrentRepeats", publishConcurrentRepeats},
	{"PublishAfterSettlementIsNew", publishAfterSettlement},
	{"PublishAcrossTenants", publishAcrossTenants},
	{"PublishOfNothing", publishNothing},
	{"PublishOfManyAtOnce", publishMany},
	{"PublishRefusesTooLarge", publishTooLarge},
	{"PublishKeepsPayloadsOfAnySize", publishSizes},
	{"PublishKeepsMetadata", publishMetadata},
	{"PublishKeepsNoReference", publishNoReference},
	{"PublishWithEndedContext", publishEndedContext},
	{"PublishConcurrentlyLosesNothing", publishConcurrently},
}

func publishReceipts(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	var batch []backend.Message
	for i := range 6 {
		m := message(a, fmt.Sprintf("key%d", i%2), fmt.Sprintf("m%d", i))
		m.Offset, m.PublishedAt = 7, time.Unix(7, 0) // ignored
		batch = append(batch, m)
	}
	batch = s.publish(p, batch...)
	later := s.publish(p, message(a, "key0", "later"))

	seen := make(map[partition]uint64)
	for _, m := range append(batch, later...) {
		if before := seen[partitionOf(m)]; m.Offset <= before {
			s.Errorf("offset %d of %v does not follow %d", m.Offset, identityOf(m), before)
		}
		seen[partitionOf(m)] = m.Offset
	}
	want := make(map[identity]uint64)
	for _, m := range append(batch, later...) {
		want[identityOf(m)] = m.Offset
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for range want {
		d := c.next()
		m := d.Message()
		if m.Offset != want[identityOf(m)] {
			s.Errorf("delivered offset %d, receipt of %v said %d", m.Offset, identityOf(m), want[identityOf(m)])
		}
		if m.PublishedAt.Equal(time.Unix(7, 0)) {
			s.Errorf("the publisher's time was taken for %v", identityOf(m))
		}
		d.done()
	}
	s.faultless(s.history.log().inOrder(backend.Strict))
}

func publishRepeat(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p, other := s.open(a, b), s.open()
	first := s.publish(p, message(a, "key", "m"))[0]

	again := first
	again.Payload, again.Metadata = []byte("something else"), map[string]string{"id": "other"}
	receipts, err := other.Publish(s.ctx, again, message(a, "key", "last"))
	if err != nil {
		s.Fatal(err)
	}
	if want := (backend.Receipt{Offset: first.Offset, Duplicate: true}); receipts[0] != want {
		s.Errorf("receipt of the repeat %+v, want %+v", receipts[0], want)
	}
	if receipts[1].Duplicate {
		s.Errorf("receipt of the message beside the repeat: %+v", receipts[1])
	}
	s.expect(message(a, "key", "last"))

	// Another partition, tenant or topic makes another message of one id.
	elsewhere := first
	elsewhere.Topic = "elsewhere"
	s.publish(p, message(a, "key2", "m"), message(b, "key", "m"), elsewhere)

	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for range 4 {
		c.next().done()
	}
	e := s.subscribeTo(p, elsewhere.Topic, backend.SubscriptionConfig{Group: group})
	e.expect(elsewhere).done()
	e.stop()
	s.finish(c, a, b)
}

func publishRepeatInBatch(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	m := message(a, "key", "m")
	s.expect(m)
	repeat := m
	repeat.Payload = []byte("second")
	s.expect(message(a, "key", "n"))
	receipts, err := p.Publish(s.ctx, m, message(a, "key", "n"), repeat, repeat)
	if err != nil {
		s.Fatal(err)
	}
	for i, duplicate := range []bool{false, false, true, true} {
		if receipts[i].Duplicate != duplicate {
			s.Errorf("receipt %d: %+v, want duplicate %v", i, receipts[i], duplicate)
		}
	}
	if receipts[2].Offset != receipts[0].Offset || receipts[3].Offset != receipts[0].Offset {
		s.Errorf("repeats have offsets of their own: %+v", receipts)
	}
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	c.expect(m).done()
	c.expect(message(a, "key", "n")).done()
	s.finish(c, a)
}

func publishConcurrentRepeats(s *stage) {
	a := s.tenant("a")
	processes := []*process{s.open(a), s.open(a)}
	for round := range 10 {
		m := message(a, "key", fmt.Sprintf("m%d", round))
		s.expect(m)
		receipts := make([]backend.Receipt, 8)
		var wg sync.WaitGroup
		for i := range receipts {
			wg.Go(func() {
				r, err := processes[i%2].Publish(s.ctx, m)
				if err != nil {
					s.Errorf("Publish: %v", err)
					return
				}
				receipts[i] = r[0]
			})
		}
		wg.Wait()
		first := 0
		for _, r := range receipts {
			if !r.Duplicate {
				first++
			}
			if r.Offset == 0 || r.Offset != receipts[0].Offset {
				first = -1
				break
			}
		}
		if first != 1 {
			s.Fatalf("receipts %+v, want one that is no duplicate and one offset", receipts)
		}
	}
}

func publishAfterSettlement(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	m := s.publish(p, message(a, "key", "m"))[0]
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	s.drained(a)
	again := s.publish(p, m)[0] // fails on a duplicate
	if again.Offset <= m.Offset {
		s.Errorf("offset %d after %d", again.Offset, m.Offset)
	}
	s.within("the second delivery", count(2, is(acked), of(m)))
	s.faultless(s.history.log().attemptsIn(1))
	s.finish(c, a)
}

func publishAcrossTenants(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	// The same keys and ids in both: only the tenant tells them apart.
	msgs := s.publish(p, message(b, "key", "1"), message(a, "key", "1"), message(a, "key", "2"), message(b, "key", "2"))
	s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	s.within("all acked", acks(msgs))
	l := s.history.log()
	s.faultless(l.exactlyOnce(msgs), l.inOrder(backend.Strict))
	for _, e := range l.only(is(delivered)) {
		for _, m := range msgs {
			if identityOf(m) == identityOf(e.msg) && m.Offset != e.msg.Offset {
				s.Errorf("receipt of %v said offset %d: %v", identityOf(m), m.Offset, e)
			}
		}
	}
}

func publishNothing(s *stage) {
	receipts, err := s.open().Publish(s.ctx)
	if len(receipts) != 0 || err != nil {
		s.Errorf("Publish() = %v, %v, want nothing", receipts, err)
	}
}

func publishMany(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	var batch []backend.Message
	for i := range 2500 {
		m := message(a, fmt.Sprintf("key%d", i%3), fmt.Sprintf("m%d", i))
		if i%10 == 9 {
			m.Tenant = b
		}
		batch = append(batch, m)
	}
	batch = s.publish(p, batch...)
	s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed}).ackAll()
	s.within("all acked", acks(batch))
	l := s.history.log()
	s.faultless(l.exactlyOnce(batch), l.inOrder(backend.Relaxed), l.attemptsIn(1))
	s.drained(a, b)
}

func publishTooLarge(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	payload, metadata := s.store.Limits()
	large, chatty := message(a, "key", "large"), message(a, "key", "chatty")
	large.Payload = make([]byte, payload+1)
	chatty.Metadata = map[string]string{"text": strings.Repeat("x", metadata+1)}
	for _, m := range []backend.Message{large, chatty} {
		// Not even the valid messages beside it are stored.
		_, err := p.Publish(s.ctx, message(a, "key", "small"), message(b, "key", "small"), m)
		var field *backend.FieldError
		if !errors.Is(err, backend.ErrTooLarge) || !errors.As(err, &field) {
			s.Errorf("Publish of %v: %v, want a FieldError with ErrTooLarge", m.ID, err)
		}
	}
	s.gone(a, b)
	large.Payload = large.Payload[1:]
	chatty.Metadata["text"] = chatty.Metadata["text"][:metadata/2]
	s.publish(p, large, chatty)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	c.expect(large).done()
	c.expect(chatty).done()
}

func publishSizes(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	limit, _ := s.store.Limits()
	random := rand.NewChaCha8([32]byte{1})
	var batch []backend.Message
	for i, n := range []int{0, 1, 255, 256, 1<<16 - 1, 1 << 16, 1<<16 + 1, limit / 2, limit - 1, limit, 0, limit} {
		m := message(a, "key", fmt.Sprintf("m%02d of %d bytes", i, n))
		m.Payload = make([]byte, min(n, limit))
		_, _ = random.Read(m.Payload)
		batch = append(batch, m)
	}
	// Escaping doubles these.
	for i, char := range []string{"'", `"`, `\`, "\x00", "\x1a", "%"} {
		m := message(a, "key", fmt.Sprintf("n%d of %q", i, char))
		m.Payload = bytes.Repeat([]byte(char), limit/2)
		batch = append(batch, m)
	}
	batch[0].Payload = nil
	batch = s.publish(p, batch...)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for _, m := range batch {
		c.expect(m).done()
	}
	s.finish(c, a)
}

func publishMetadata(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	for i, metadata := range []map[string]string{
		nil,
		{},
		{"": ""},
		{"key": "value", "Key": "Value", "KEY": "", "k\u00e9y": "1", "ke\u0301y": "2"},
		{"'": `"`, `\`: `\\`, "\x00": "\x00\x01\x1f\x7f", "\u2028": "<&>", "😀": "👩‍👩‍👧", "%s": "?", "{}": "[]", "a ": " a"},
		{"number": "007", "null": "null", "true": "true", "float": "1e400"},
	} {
		m := message(a, "key", fmt.Sprintf("m%d", i))
		m.Metadata = metadata
		s.publish(p, m)
		c.expect(m).done()
	}
}

func publishNoReference(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	scribble := func(m backend.Message) {
		for i := range m.Payload {
			m.Payload[i] = '#'
		}
		m.Metadata["id"] = "scribbled"
		m.Metadata["more"] = "scribbled"
	}
	m := message(a, "key", "m")
	batch := []backend.Message{m, message(a, "key", "n")}
	s.publish(p, batch...)
	scribble(m)
	batch[1] = message(a, "key", "overwritten")

	// What is delivered belongs to the receiver, once for each attempt and
	// group. The stage compares every delivery with the original.
	cfg := backend.SubscriptionConfig{Group: group, Retry: backend.RetryPolicy{InitialBackoff: time.Millisecond}}
	c := s.subscribe(p, cfg)
	cfg.Group = "auditors"
	other := s.subscribe(p, cfg)
	for range 2 {
		for _, c := range []*consumer{c, other} {
			d := c.expect(m)
			scribble(d.Message())
			d.must(d.nack(errTest))
		}
	}
	d := c.expect(m)
	scribble(d.Message())
	d.must(d.reject(errTest))
	u := s.undertake(p)
	d = u.next()
	m = message(a, "key", "m")
	if got := d.Message(); string(got.Payload) != string(m.Payload) || got.Metadata["id"] != m.Metadata["id"] {
		s.Errorf("dead letter of %q, %q, want %q, %q", got.Payload, got.Metadata, m.Payload, m.Metadata)
	}
	d.done()
}

func publishEndedContext(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	m := message(a, "key", "m")
	if _, err := p.Publish(ctx, m); !errors.Is(err, context.Canceled) {
		s.Errorf("Publish with a cancelled context: %v", err)
	}
	s.publish(p, m) // new: nothing was stored
	s.subscribe(p, backend.SubscriptionConfig{Group: group}).expect(m).done()
}

// publishConcurrently has publishers commit in another order than they take
// their offsets in, while a consumer moves its watermark behind them.
func publishConcurrently(s *stage) {
	const publishers, rounds = 12, 25
	a, b := s.tenant("a"), s.tenant("b")
	processes := []*process{s.open(a, b), s.open(a, b)}
	s.subscribe(processes[0], backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed}).ackAll()
	all := make([][]backend.Message, publishers)
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for n := range rounds {
				tenant := a
				if i%3 == 2 {
					tenant = b
				}
				batch := []backend.Message{
					message(tenant, "shared", fmt.Sprintf("p%d-%d", i, n)),
					message(tenant, fmt.Sprintf("own%d", i), fmt.Sprintf("%d", n)),
				}
				s.expect(batch...)
				receipts, err := processes[i%2].Publish(s.ctx, batch...)
				if err != nil {
					s.Errorf("Publish: %v", err)
					return
				}
				for j := range batch {
					batch[j].Offset = receipts[j].Offset
				}
				all[i] = append(all[i], batch...)
			}
		})
	}
	wg.Wait()
	var msgs []backend.Message
	for _, list := range all {
		for i := 2; i < len(list); i++ {
			if list[i].Offset <= list[i-2].Offset {
				s.Errorf("a publisher's later message has a lower offset: %d, then %d", list[i-2].Offset, list[i].Offset)
			}
		}
		msgs = append(msgs, list...)
	}
	s.within("all acked", acks(msgs))
	s.faultless(s.history.log().exactlyOnce(msgs))
	s.drained(a, b)
}
