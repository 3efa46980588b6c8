package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
)

// extensions runs a handler of sub, whose topic is merge, on one delivery with a
// visibility timeout of 30 s and returns when it was extended, and to when, in seconds. The first answers
// of the queue are those given.
func extensions(t *testing.T, sub consume.Subscription, handle func(context.Context, consume.Delivery) error, answers ...error) (log []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		start(t, s, consume.Params{Handlers: handlers(consume.Func(sub, handle))})
		began := time.Now()
		var mu sync.Mutex
		d := s.deliver("merge", backend.Message{}, func(d *delivery) {
			d.extend = func(_ context.Context, timeout time.Duration) error {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprintf("%.0f:%.0f", time.Since(began).Seconds(), (time.Since(began)+timeout).Seconds()))
				if len(answers) == 0 {
					return nil
				}
				err := answers[0]
				answers = answers[1:]
				if errors.Is(err, backend.ErrLeaseLost) {
					d.end(err)
				}
				return err
			}
		})
		<-d.ctx.Done()
		time.Sleep(time.Hour) // for an extension that should not come
	})
	return log
}

func TestLongHandlerKeepsItsVisibility(t *testing.T) {
	long := func(context.Context, consume.Delivery) error { time.Sleep(35 * time.Second); return nil }
	for _, c := range []struct {
		name    string
		handle  func(context.Context, consume.Delivery) error
		answers []error
		want    []string
	}{
		{"every third", long, nil, []string{"10:40", "20:50", "30:60"}},
		{
			"short", func(context.Context, consume.Delivery) error { time.Sleep(9 * time.Second); return nil },
			nil, nil,
		},
		{
			"again after an error", long,
			[]error{errBroken, errBroken},
			[]string{"10:40", "15:45", "20:50", "30:60"},
		},
		{
			"not after the lease is lost", func(ctx context.Context, _ consume.Delivery) error { time.Sleep(35 * time.Second); return ctx.Err() },
			[]error{nil, backend.ErrLeaseLost},
			[]string{"10:40", "20:50"},
		},
		{
			"not after a panic", func(context.Context, consume.Delivery) error { time.Sleep(15 * time.Second); panic("x") },
			nil,
			[]string{"10:40"},
		},
		{
			"a longer one of the handler's is never cut", func(ctx context.Context, d consume.Delivery) error {
				time.Sleep(time.Second)
				if err := d.Extend(ctx, 100*time.Second); err != nil {
					return err
				}
				time.Sleep(95 * time.Second)
				return nil
			},
			nil,
			[]string{"1:101", "81:111", "91:121"},
		},
		{
			"a shorter one of the handler's is followed sooner", func(ctx context.Context, d consume.Delivery) error {
				time.Sleep(time.Second)
				if err := d.Extend(ctx, 9*time.Second); err != nil {
					return err
				}
				time.Sleep(4 * time.Second)
				return nil
			},
			nil,
			[]string{"1:10", "4:34"},
		},
		{
			"an invalid one of the handler's changes nothing", func(ctx context.Context, d consume.Delivery) error {
				if err := d.Extend(ctx, 0); err == nil {
					return errBroken
				}
				time.Sleep(15 * time.Second)
				return nil
			},
			nil,
			[]string{"10:40"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := extensions(t, onMerge, c.handle, c.answers...); !slices.Equal(got, c.want) {
				t.Errorf("extended at:to %v, want %v", got, c.want)
			}
		})
	}
}

// An extension under way when the handler returns is waited for: it must not
// meet a delivery that is settled.
func TestOutcomeWaitsForAnExtensionUnderWay(t *testing.T) {
	s := &script{}
	extending := make(chan struct{})
	start(t, s, consume.Params{Handlers: handlers(consume.Func(
		consume.Subscription{Topic: "merge", Group: "g", VisibilityTimeout: 3 * time.Millisecond},
		func(context.Context, consume.Delivery) error { <-extending; return nil },
	))})
	d := s.deliver("merge", backend.Message{}, func(d *delivery) {
		d.extend = func(context.Context, time.Duration) error {
			close(extending)
			select {
			case <-d.settled:
				t.Error("settled beside an extension")
			case <-time.After(10 * time.Millisecond): // enough to see an outcome that does not wait
			}
			return nil
		}
	})
	await(t, "an outcome", d.settled)
}

// The timer may fire while the handler's own extension is under way: it must
// not cut that one when its turn comes.
func TestTimerThatWaitedDoesNotCutALongerExtension(t *testing.T) {
	s := &script{}
	start(t, s, consume.Params{Handlers: handlers(consume.Func(
		consume.Subscription{Topic: "merge", Group: "g", VisibilityTimeout: 30 * time.Millisecond},
		func(ctx context.Context, d consume.Delivery) error {
			err := d.Extend(ctx, time.Hour)
			time.Sleep(30 * time.Millisecond) // for a cut that should not come
			return err
		},
	))})
	var mu sync.Mutex
	var made []time.Duration
	d := s.deliver("merge", backend.Message{}, func(d *delivery) {
		d.extend = func(_ context.Context, timeout time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, timeout)
			if timeout == time.Hour {
				time.Sleep(20 * time.Millisecond) // the timer fires meanwhile
			}
			return nil
		}
	})
	if got := await(t, "an outcome", d.settled); got.verb != "ack" {
		t.Fatalf("got %s, cause %v", got.verb, got.cause)
	}
	mu.Lock()
	defer mu.Unlock()
	if made[len(made)-1] != time.Hour {
		t.Errorf("extended by %v: the last cut the handler's", made)
	}
}
