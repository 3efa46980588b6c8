package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// visibility extends one delivery for as long as its handler runs. A delivery
// that is handled quickly costs one timer that never fires, no goroutine.
type visibility struct {
	source  backend.Delivery
	timeout time.Duration
	limit   time.Time       // of the handler's time; zero for none
	failed  func(error)     // told of extensions that will be tried again
	owner   *sync.WaitGroup // holds one count while the timer is armed

	// mu is held across each extension: they take effect in the order made,
	// so one of our own never cuts a longer one of the handler's.
	mu    sync.Mutex
	timer *time.Timer
	armed bool // the timer is set, or has fired and waits for mu
	ended bool
	due   time.Time // of the next extension
}

func (v *visibility) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.owner.Add(1)
	v.armed = true
	wait := v.timeout / 3
	v.due = time.Now().Add(wait)
	v.timer = time.AfterFunc(wait, v.fire)
}

// end waits for an extension under way.
func (v *visibility) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	if v.armed && v.timer.Stop() {
		v.disarm()
	}
}

func (v *visibility) disarm() {
	v.armed = false
	v.owner.Done()
}

func (v *visibility) fire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx := v.source.Context()
	if v.ended || v.overdue() || ctx.Err() != nil {
		v.disarm()
		return
	}
	wait := time.Until(v.due) // the handler may have moved it meanwhile
	if wait <= 0 {
		switch err := v.source.Extend(ctx, v.timeout); {
		case err == nil:
			wait = v.timeout / 3
		case ctx.Err() != nil, errors.Is(err, backend.ErrLeaseLost), errors.Is(err, backend.ErrSettled):
			v.disarm()
			return
		default:
			v.failed(err)
			wait = v.timeout / 6 // three more tries before the visibility ends
		}
		v.due = time.Now().Add(wait)
	}
	v.timer.Reset(wait)
}

// overdue tells that the handler's time is over. What is left of the visibility
// then is for its result to arrive.
func (v *visibility) overdue() bool { return !v.limit.IsZero() && !time.Now().Before(v.limit) }

// extend is the handler's own. The next automatic extension comes when as much
// is left of it as is left of a timeout at its first. It ends no later than
// automatic ones would: a handler that hangs cannot have asked for a year.
func (v *visibility) extend(ctx context.Context, timeout time.Duration) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.limit.IsZero() {
		left := time.Until(v.limit)
		if left <= 0 {
			return fmt.Errorf("extend: %w", ErrHandlerTimeout)
		}
		timeout = min(timeout, left+v.timeout)
	}
	if err := v.source.Extend(ctx, timeout); err != nil {
		return err
	}
	wait := max(timeout/3, timeout-v.timeout*2/3)
	v.due = time.Now().Add(wait)
	if v.armed && v.timer.Stop() {
		v.timer.Reset(wait)
	}
	return nil
}
