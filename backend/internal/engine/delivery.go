package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/backend"
)

// verb is how a handler settles a delivery.
type verb uint8

const (
	ack verb = iota
	nack
	postpone
	reject
	verbs
)

func (v verb) String() string { return [verbs]string{"ack", "nack", "postpone", "reject"}[v] }

// maxErrorLength bounds the text of a failure that is kept.
const maxErrorLength = 16 << 10

// delivery implements [backend.Delivery].
type delivery struct {
	s       *Subscription
	p       *partition
	e       *entry
	msg     *Message
	attempt int
	ctx     context.Context
	cancel  context.CancelCauseFunc

	// Guarded by Subscription.mu.
	done     bool // settled by the handler
	over     bool // superseded: lease or visibility ended
	extended bool

	verb    verb          // how it was settled, once done
	result  chan error    // one outcome of the settlement
	charged chan struct{} // of a suspect: closed once the attempt is on record, or over
}

// Message shows a suspect only once the attempt is on record. So a crash
// charges what a handler has looked at, and nothing else.
func (d *delivery) Message() backend.Message {
	if d.charged != nil {
		<-d.charged
	}
	return d.msg.Message
}

func (d *delivery) Attempt() int             { return d.attempt }
func (d *delivery) Context() context.Context { return d.ctx }

// disclose lets Message return. mu is held.
func (d *delivery) disclose() {
	if d == nil || d.charged == nil {
		return
	}
	select {
	case <-d.charged:
	default:
		close(d.charged)
	}
}

func (d *delivery) Failure() (backend.Failure, bool) {
	if d.msg.Failure == nil {
		return backend.Failure{}, false
	}
	return *d.msg.Failure, true
}

func (d *delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, ack, func(time.Time) { d.e.write = writeAck })
}

func (d *delivery) Nack(ctx context.Context, cause error) error {
	return d.settle(ctx, nack, func(now time.Time) {
		d.p.fail(d.e, errorText(cause), d.s.o.Config.Retry, d.s.jitter, now)
	})
}

func (d *delivery) Reject(ctx context.Context, cause error) error {
	return d.settle(ctx, reject, func(time.Time) {
		if !d.e.charged {
			d.e.attempts++
		}
		d.e.lastError, d.e.write, d.e.dead = errorText(cause), writeAck, true
	})
}

func (d *delivery) Postpone(ctx context.Context, wait time.Duration) error {
	if err := backend.CheckDelay(wait); err != nil {
		return err
	}
	return d.settle(ctx, postpone, func(now time.Time) {
		d.p.unspend(d.e)
		d.e.suspect, d.e.write, d.e.barrier = false, writeFail, true
		d.e.visibleAt = now.Add(wait)
		d.p.failing++
		d.p.barriers++
	})
}

func (d *delivery) settle(ctx context.Context, verb verb, decide func(now time.Time)) error {
	s := d.s
	s.mu.Lock()
	switch {
	case d.done:
		s.mu.Unlock()
		return d.wrap(verb.String(), backend.ErrSettled)
	case d.over:
		s.mu.Unlock()
		return d.wrap(verb.String(), backend.ErrLeaseLost)
	}
	now := time.Now()
	d.done, d.verb = true, verb
	d.disclose()
	d.result = make(chan error, 1)
	d.e.barrier = false
	decide(now)
	d.e.status = writing
	d.p.outs--
	d.p.writes++
	s.touch(d.p, now)
	s.mu.Unlock()
	d.cancel(backend.ErrSettled)

	select {
	case err := <-d.result:
		return d.wrap(verb.String(), err)
	case <-ctx.Done():
		return d.wrap(verb.String(), fmt.Errorf("not known to be durable yet: %w", context.Cause(ctx)))
	}
}

func (d *delivery) Extend(ctx context.Context, wait time.Duration) error {
	if err := backend.CheckDelay(wait); err != nil {
		return err
	}
	s := d.s
	asked := time.Now()
	s.mu.Lock()
	done, over, lease := d.done, d.over, d.p.lease()
	s.mu.Unlock()
	if !done && !over {
		// A long handler is what outlives a lease unnoticed: ask the store.
		lost, err := s.o.Store.Renew(ctx, d.msg.Tenant, []Lease{lease})
		if err != nil {
			return d.wrap("extend", err)
		}
		s.mu.Lock()
		if len(lost) > 0 {
			s.lose(d.p)
		} else if !d.p.dropped {
			d.p.expires = asked.Add(s.o.Config.LeaseDuration)
		}
		if done, over = d.done, d.over; !done && !over {
			d.e.deadline, d.extended = time.Now().Add(wait), true
			s.alarm(d.p, d.e.deadline)
		}
		s.mu.Unlock()
	}
	switch {
	case done:
		return d.wrap("extend", backend.ErrSettled)
	case over:
		return d.wrap("extend", backend.ErrLeaseLost)
	}
	return nil
}

func (d *delivery) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	m := &d.msg.Message
	return fmt.Errorf("%s of offset %d (tenant %q, topic %q, partition %q, group %q): %w",
		verb, m.Offset, m.Tenant, m.Topic, m.PartitionKey, d.s.o.Config.Group, err)
}

// unspend takes back what handing over has cost, in memory.
func (p *partition) unspend(e *entry) {
	e.deliveries--
	if e.charged {
		e.attempts--
		e.charged = false
	}
}

func errorText(err error) string {
	if err == nil {
		return "no reason given"
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxErrorLength {
		return text
	}
	cut := maxErrorLength - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
