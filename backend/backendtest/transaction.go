package backendtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
)

var transactionCases = []testCase{
	{"PublishTxNeedsSQL", txUnsupported},
	{"PublishTxExistsOnceCommitted", txCommit},
	{"PublishTxIsGoneWhenRolledBack", txRollback},
	{"PublishTxRecognisesARepeat", txRepeat},
	{"PublishTxRefusesBeforeTheDatabase", txRefused},
	{"PublishTxWithAnOlderSnapshot", txOlderSnapshot},
	{"PublishTxHeldOpenHoldsUpNothingElse", txHeldOpen},
	{"PublishTxConcurrentlyLosesNothing", txConcurrently},
}

// begin starts a transaction of the application's own. It reports false on a
// backend without SQL, where there is nothing more to see.
func (s *stage) begin() (*sql.Tx, bool) {
	s.Helper()
	db := s.store.DB()
	if db == nil {
		return nil, false
	}
	tx, err := db.BeginTx(s.ctx, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback() }) // for a case that fails half-way
	return tx, true
}

func (s *stage) publishTx(p *process, tx *sql.Tx, msgs ...backend.Message) []backend.Message {
	s.Helper()
	s.expect(msgs...)
	ctx, cancel := s.timeout()
	defer cancel()
	receipts, err := p.PublishTx(ctx, tx, msgs...)
	if err != nil {
		s.Fatalf("PublishTx: %v", err)
	}
	return s.receive(msgs, receipts)
}

func (s *stage) commit(tx *sql.Tx) {
	s.Helper()
	if err := tx.Commit(); err != nil {
		s.Fatalf("commit: %v", err)
	}
	s.history.notef("committed")
}

func txUnsupported(s *stage) {
	if s.store.DB() != nil {
		return
	}
	_, err := s.open().PublishTx(s.ctx, nil, message(s.tenant("a"), "key", "m"))
	if !errors.Is(err, backend.ErrNotSupported) {
		s.Errorf("PublishTx: %v, want ErrNotSupported", err)
	}
}

func txCommit(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	tx, ok := s.begin()
	if !ok {
		return
	}
	inside := s.publishTx(p, tx, messages(a, "key", 3)...)
	for range 3 { // the queue has looked, and seen none of it
		m := s.publish(p, message(a, "sentinel", fmt.Sprint(len(s.history.log()))))[0]
		c.expect(m).done()
	}
	s.commit(tx)
	for _, m := range inside {
		c.expect(m).done()
	}
	s.faultless(s.history.log().attemptsIn(1))
	s.finish(c, a)
}

func txRollback(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	tx, ok := s.begin()
	if !ok {
		return
	}
	m := message(a, "key", "m")
	if _, err := p.PublishTx(s.ctx, tx, m, message(a, "other", "m")); err != nil {
		s.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		s.Fatal(err)
	}
	last := s.publish(p, m)[0] // no duplicate
	c.expect(last).done()
	s.finish(c, a)
}

func txRepeat(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	tx, ok := s.begin()
	if !ok {
		return
	}
	stored := s.publish(p, message(a, "key", "m"))[0]
	fresh := message(a, "key", "n")
	s.expect(fresh)
	receipts, err := p.PublishTx(s.ctx, tx, stored, fresh, fresh)
	if err != nil {
		s.Fatal(err)
	}
	if want := (backend.Receipt{Offset: stored.Offset, Duplicate: true}); receipts[0] != want {
		s.Errorf("repeat of a stored message: %+v, want %+v", receipts[0], want)
	}
	if receipts[1].Duplicate || receipts[1].Offset <= stored.Offset {
		s.Errorf("new message: %+v", receipts[1])
	}
	if want := (backend.Receipt{Offset: receipts[1].Offset, Duplicate: true}); receipts[2] != want {
		s.Errorf("repeat within the batch: %+v, want %+v", receipts[2], want)
	}
	receipts, err = p.PublishTx(s.ctx, tx, fresh)
	if err != nil || !receipts[0].Duplicate {
		s.Errorf("repeat within the transaction: %+v, %v", receipts, err)
	}
	s.commit(tx)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	c.expect(stored).done()
	c.expect(fresh).done()
	s.finish(c, a)
}

func txRefused(s *stage) {
	a, b := s.tenant("a"), s.tenant("b")
	p := s.open(a, b)
	tx, ok := s.begin()
	if !ok {
		return
	}
	payload, _ := s.store.Limits()
	large := message(a, "key", "large")
	large.Payload = make([]byte, payload+1)
	for _, c := range []struct {
		name string
		msgs []backend.Message
		want error
	}{
		{"of two tenants", []backend.Message{message(a, "key", "1"), message(b, "key", "2")}, backend.ErrInvalid},
		{"without partition key", []backend.Message{message(a, "key", "1"), message(a, "", "2")}, backend.ErrInvalid},
		{"too large", []backend.Message{message(a, "key", "1"), large}, backend.ErrTooLarge},
	} {
		_, err := p.PublishTx(s.ctx, tx, c.msgs...)
		var field *backend.FieldError
		if !errors.Is(err, c.want) || !errors.As(err, &field) {
			s.Errorf("PublishTx %s: %v, want a FieldError with %v", c.name, err, c.want)
		}
	}
	if receipts, err := p.PublishTx(s.ctx, tx); len(receipts) != 0 || err != nil {
		s.Errorf("PublishTx of nothing: %v, %v", receipts, err)
	}
	// What is refused before the database leaves the transaction usable.
	m := s.publishTx(p, tx, message(a, "key", "m"))[0]
	s.commit(tx)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group})
	c.expect(m).done()
	s.finish(c, a, b)
}

// txOlderSnapshot publishes into partitions whose watermarks moved, and that
// drained, after the transaction took its snapshot.
func txOlderSnapshot(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	// A group that is away keeps the watermark of the one that is not.
	away := s.subscribe(p, backend.SubscriptionConfig{Group: "away"})
	away.stop()
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group}).ackAll()
	for _, key := range []string{"key1", "key2"} {
		s.publish(p, message(a, key, "before"))
	}
	tx, ok := s.begin()
	if !ok {
		return
	}
	msgs := s.publishTx(p, tx, message(a, "snapshot", "m")) // reads its receipts back
	var moved []backend.Message
	for range 20 {
		moved = append(moved, s.publish(p,
			message(a, "key1", fmt.Sprintf("m%d", len(moved))), message(a, "key3", fmt.Sprintf("m%d", len(moved))))...)
	}
	s.within("everything committed is acked", acks(moved))
	for _, key := range []string{"key1", "key2", "key3", "key4"} {
		msgs = append(msgs, s.publishTx(p, tx, message(a, key, "late"))...)
	}
	s.commit(tx)
	s.within("the late messages are acked", acks(msgs))
	c.stop()

	away = s.subscribe(p, backend.SubscriptionConfig{Group: "away"}).ackAll()
	s.within("the group that was away has them too", acks(append(msgs, moved...), by(away.name)))
	away.stop()
	s.faultless(s.history.log().attemptsIn(1))
}

func txHeldOpen(s *stage) {
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed}).ackAll()
	tx, ok := s.begin()
	if !ok {
		return
	}
	held := s.publishTx(p, tx, message(a, "key", "held"), message(a, "fresh", "held"))
	var flowing []backend.Message
	for i := range 40 {
		flowing = append(flowing, s.publish(p,
			message(a, "key", fmt.Sprintf("m%d", i)),
			message(a, fmt.Sprintf("key%d", i%5), fmt.Sprintf("m%d", i)),
			message(a, "aaa", fmt.Sprintf("m%d", i)), message(a, "zzz", fmt.Sprintf("m%d", i)),
		)...)
	}
	s.within("all others are acked while the transaction is open", acks(flowing))
	// A second transaction into the same partition waits for nobody.
	other, _ := s.begin()
	flowing = append(flowing, s.publishTx(p, other, message(a, "key", "second"))...)
	s.commit(other)
	s.within("a second transaction overtakes it", acks(flowing))
	s.commit(tx)
	s.within("the held messages are acked", acks(held))
	l := s.history.log()
	s.faultless(l.exactlyOnce(append(flowing, held...)), l.attemptsIn(1))
	s.finish(c, a)
}

func txConcurrently(s *stage) {
	const writers, rounds = 6, 20
	if s.store.DB() == nil {
		return
	}
	a := s.tenant("a")
	p := s.open(a)
	c := s.subscribe(p, backend.SubscriptionConfig{Group: group, Ordering: backend.Relaxed}).ackAll()
	committed := make([][]backend.Message, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range rounds {
				batch := []backend.Message{
					message(a, "shared", fmt.Sprintf("w%d-%d", i, n)),
					message(a, fmt.Sprintf("own%d", n%3), fmt.Sprintf("w%d-%d", i, n)),
				}
				commit := n%4 != 3
				if commit {
					s.expect(batch...)
				}
				if err := s.write(p, commit, batch); err != nil {
					s.Errorf("writer %d, round %d: %v", i, n, err)
					return
				}
				if commit {
					committed[i] = append(committed[i], batch...)
				}
			}
		})
	}
	wg.Wait()
	var msgs []backend.Message
	for _, list := range committed {
		msgs = append(msgs, list...)
	}
	s.within("all committed are acked", acks(msgs))
	s.faultless(s.history.log().exactlyOnce(msgs))
	s.finish(c, a)
}

// write runs one transaction of an application, again if the database made it
// a victim.
func (s *stage) write(p *process, commit bool, batch []backend.Message) error {
	ctx, cancel := s.timeout()
	defer cancel()
	for {
		err := s.writeOnce(ctx, p, commit, batch)
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.history.notef("transaction repeated: %v", err)
	}
}

func (s *stage) writeOnce(ctx context.Context, p *process, commit bool, batch []backend.Message) error {
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	for _, m := range batch {
		if _, err := p.PublishTx(ctx, tx, m); err != nil {
			return err
		}
	}
	if !commit {
		return nil
	}
	return tx.Commit()
}
