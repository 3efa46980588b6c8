package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Bounds of what Stop does after its context has ended.
const (
	releaseTimeout    = 2 * time.Second
	minReleaseTimeout = 500 * time.Millisecond
)

// releaseTime is a quarter of the time that ctx gives, within the bounds.
func releaseTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ok && left > 0 {
		return min(max(left/4, minReleaseTimeout), releaseTimeout)
	}
	return releaseTimeout
}

// lasting returns a context that outlives ctx by so much.
func lasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	end := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(by):
		case <-longer.Done():
		}
		cancel()
	})
	return longer, func() { end(); cancel() }
}

// Stop implements [backend.Subscription]. In order: 1. no new deliveries; 2.
// those in flight may settle; 3. when ctx ends first, the rest lose their
// contexts and are counted; 4. the workers leave; 5. leases and heartbeats are
// given back.
func (s *Subscription) Stop(ctx context.Context) error {
	first := false
	s.stopOnce.Do(func() { first = true; go s.stop(ctx) })
	if !first { // the first caller's time is not this one's
		select {
		case <-s.stopped:
		case <-ctx.Done():
			return fmt.Errorf("subscription of topic %q, group %q is still stopping: %w", s.o.Topic, s.o.Config.Group, context.Cause(ctx))
		}
	}
	<-s.stopped // within releaseTimeout after ctx has ended
	return s.stopErr
}

func (s *Subscription) stop(ctx context.Context) {
	defer close(s.stopped)
	by := releaseTime(ctx)
	s.o.Hub.remove(s.o.Topic, s)
	close(s.stopping)
	s.mu.Lock()
	s.halted = true
	s.mu.Unlock()

	<-s.dispatched
	cut := s.drain(ctx)
	close(s.quitting)
	s.mu.Lock()
	s.quit = true
	s.toAdvance.Broadcast()
	s.toSettle.Broadcast()
	s.mu.Unlock()
	left := make(chan struct{})
	go func() { s.workers.Wait(); close(left) }()
	end, cancel := lasting(ctx, by)
	defer cancel()
	select { // a store call under way is given its time before it is cut off
	case <-left:
	case <-end.Done():
		s.cancel(backend.ErrClosed)
		<-left
	}
	err := s.giveBack(end)
	s.met.leases.Update(0)
	s.cancel(backend.ErrClosed)
	if cut > 0 {
		err = errors.Join(fmt.Errorf("%d deliveries cut off and returned without an attempt: %w", cut, context.Cause(ctx)), err)
	}
	if err != nil {
		s.stopErr = fmt.Errorf("subscription of topic %q, group %q: %w", s.o.Topic, s.o.Config.Group, err)
	}
}

// drain waits until nothing is in flight and returns what was when ctx ended.
func (s *Subscription) drain(ctx context.Context) (cut int) {
	release := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle.Broadcast()
	})
	defer release()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.inflight > 0 && ctx.Err() == nil {
		s.idle.Wait()
	}
	for _, t := range s.tenants {
		for _, p := range t.parts {
			cut += p.outs
			s.takeBack(p)
		}
	}
	return cut
}

// takeBack ends the deliveries of p that are out, as if they had not been made.
func (s *Subscription) takeBack(p *partition) {
	for _, e := range p.entries {
		if e.status != out {
			continue
		}
		charge := e.charge
		p.unspend(e)
		s.supersede(p, e, backend.ErrClosed)
		e.status = waiting
		if charge != uncharged { // what is stored, or on its way, has to be taken back
			e.status, e.write, e.visibleAt = writing, writeFail, time.Time{}
			p.writes++
			p.failing++
		}
	}
	p.scan = 0
}

// supersede ends a delivery that is out.
func (s *Subscription) supersede(p *partition, e *entry, cause error) {
	e.d.over = true
	e.d.disclose()
	e.d.cancel(cause)
	e.d = nil
	p.outs--
	s.land(p.t, 1)
}

// land takes n deliveries of a tenant out of flight.
func (s *Subscription) land(t *tenant, n int) {
	s.inflight -= n
	t.inflight -= n
	if n > 0 {
		s.idle.Broadcast()
		kick(s.dispatchKick)
	}
}

// giveBack writes what takeBack left and releases all leases, a few tenants at
// a time. What it cannot release expires.
func (s *Subscription) giveBack(ctx context.Context) error {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.tenants))
	s.mu.Unlock()
	var failed atomic.Int64
	each(all, func(t *tenant) {
		s.returnCharges(ctx, t)
		for chunk := range slices.Chunk(s.handBack(t), leaseChunk) {
			if err := s.o.Store.Release(ctx, t.id, chunk); err != nil {
				s.faults.report("release", t.id, err)
				failed.Add(int64(len(chunk)))
			}
		}
		s.collectLast(ctx, t)
		if !t.beatAt.IsZero() {
			if err := s.o.Store.Leave(ctx, t.id); err != nil {
				s.faults.report("leave", t.id, err)
			}
		}
	})
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d leases could not be released and expire within %v", n, s.o.Config.LeaseDuration)
	}
	return nil
}

// handBack forgets the partitions of a tenant and returns their leases.
func (s *Subscription) handBack(t *tenant) (back []Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range t.parts {
		back = append(back, p.release())
		p.dropped = true
		for _, e := range p.entries { // an outcome that could not be written
			if e.d != nil && e.status == writing {
				s.answer(e, backend.ErrLeaseLost)
			}
		}
	}
	return back
}

func (s *Subscription) returnCharges(ctx context.Context, t *tenant) {
	for {
		s.mu.Lock()
		parts, batch := s.collect(t, time.Now())
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		results, err := s.o.Store.Settle(ctx, t.id, batch)
		s.mu.Lock()
		if err == nil {
			s.settled(t, parts, batch, results)
		}
		s.mu.Unlock()
		if err != nil {
			s.faults.report("settle", t.id, err)
			return
		}
	}
}
