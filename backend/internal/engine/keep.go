package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// controlEvery bounds the age of what is known of members and pauses.
	controlEvery = 500 * time.Millisecond
	// controlChunk is the number of tenants one control statement covers.
	controlChunk = 500
	// collectChunk is the number of passed partitions looked at at a time.
	collectChunk = 100
	// maxLastCollect bounds those looked at when a subscription stops.
	maxLastCollect = 1000
	// keepWorkers is the number of tenants looked after at once. Those that hang,
	// with the shard they are on, hold up the others for a LeaseRenewal each.
	keepWorkers = 16
)

// keep does what has to be done in time whether or not there is work. Each of its
// chores has a goroutine of its own: on Vitess a statement may hang with the shard
// it goes to, and the leases of other shards have to be renewed meanwhile.
func (s *Subscription) keep() {
	every := min(max(s.o.Config.LeaseRenewal/4, 5*time.Millisecond), 250*time.Millisecond)
	s.workers.Go(func() {
		s.regularly(every, s.releaseKick, s.release)
		s.release()
	})
	s.workers.Go(func() { s.regularly(every, s.beatKick, s.beat) })
	s.workers.Go(func() { s.regularly(every, s.controlKick, s.control) })
	s.regularly(every, nil, func() {
		s.renew()
		s.nudge()
	})
}

// regularly does a chore at intervals, and when kicked, until the subscription
// ends.
func (s *Subscription) regularly(every time.Duration, kicked <-chan struct{}, chore func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-kicked:
		case <-s.quitting:
			return
		}
		chore()
	}
}

// inTime bounds what has to be done again before a lease runs out.
func (s *Subscription) inTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.o.Config.LeaseRenewal)
}

// clean removes what nobody needs any more. It has a goroutine of its own:
// deletes may wait for locks, and leases have to be renewed meanwhile.
func (s *Subscription) clean() {
	ticker := time.NewTicker(min(s.o.Config.LeaseDuration, time.Second))
	defer ticker.Stop()
	purgeAt := time.Now().Add(s.o.Config.LeaseDuration)
	for {
		select {
		case <-ticker.C:
		case <-s.quitting:
			return
		}
		s.garbage()
		if now := time.Now(); now.After(purgeAt) {
			purgeAt = now.Add(2 * s.o.Config.LeaseDuration)
			for list := range slices.Chunk(s.list, tenantChunk) {
				if err := s.o.Store.Purge(s.ctx, list); err != nil {
					s.faults.report("purge", "", err)
				}
			}
		}
	}
}

// each runs work for several tenants, a few at a time.
func each[T any](items []T, work func(T)) {
	if len(items) == 1 {
		work(items[0])
		return
	}
	var wg sync.WaitGroup
	next := make(chan T)
	for range min(keepWorkers, len(items)) {
		wg.Go(func() {
			for item := range next {
				work(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	wg.Wait()
}

type due[T any] struct {
	t    *tenant
	list []T
}

// release gives back what was handed over to other members.
func (s *Subscription) release() {
	s.mu.Lock()
	byTenant := make(map[*tenant][]Release)
	for _, p := range s.releases {
		byTenant[p.t] = append(byTenant[p.t], p.release())
	}
	s.releases = nil
	s.mu.Unlock()
	var work []due[Release]
	for t, list := range byTenant {
		for chunk := range slices.Chunk(list, leaseChunk) {
			work = append(work, due[Release]{t, chunk})
		}
	}
	each(work, func(w due[Release]) {
		ctx, cancel := s.inTime()
		defer cancel()
		if err := s.o.Store.Release(ctx, w.t.id, w.list); err != nil {
			s.faults.report("release", w.t.id, err) // it will expire
		}
	})
}

// renew queues the tenants with leases that are due, and starts workers for
// them.
func (s *Subscription) renew() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		if !t.renewing && len(t.dueLeases(now)) > 0 {
			t.renewing = true
			s.toRenew.push(t)
		}
	}
	for n := s.toRenew.len(); n > 0 && s.renewers < maxRenewers; n-- {
		s.renewers++
		s.workers.Go(s.renewQueued)
	}
}

// maxRenewers is the number of tenants whose leases are renewed at once. None
// waits for another: a row of one may be locked by somebody's transaction.
const maxRenewers = 16

// renewQueued takes one tenant after the other, without waiting for the next
// tick: there may be many.
func (s *Subscription) renewQueued() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.quit && s.toRenew.len() > 0 {
		t := s.toRenew.pop()
		list := t.dueLeases(time.Now())
		s.mu.Unlock()
		for chunk := range slices.Chunk(list, leaseChunk) {
			s.renewSome(t, chunk)
		}
		s.mu.Lock()
		t.renewing = false
	}
	s.renewers--
}

func (t *tenant) dueLeases(now time.Time) (list []Lease) {
	for _, p := range t.parts {
		if !p.renewAt.After(now) {
			list = append(list, p.lease())
		}
	}
	return list
}

func (s *Subscription) renewSome(t *tenant, list []Lease) {
	asked := time.Now()
	ctx, cancel := s.inTime()
	defer cancel()
	lost, err := s.o.Store.Renew(ctx, t.id, list)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.faults.report("renew", t.id, err) // at the next tick again, until the lease has expired
		return
	}
	for _, lease := range list {
		p := t.parts[lease.Key]
		switch {
		case p == nil || p.epoch != lease.Epoch || p.settling && slices.Contains(lost, lease.Key):
			// Drained, dropped or acquired anew meanwhile; a settlement under way
			// will tell.
		case slices.Contains(lost, lease.Key):
			s.lose(p)
		default:
			p.expires = asked.Add(s.o.Config.LeaseDuration)
			p.renewAt = asked.Add(s.o.Config.LeaseRenewal)
		}
	}
}

// beat tells the others of tenants with work that we are there, and takes the
// word back when a tenant has had none for a lease duration.
func (s *Subscription) beat() {
	now := time.Now()
	s.mu.Lock()
	var alive, gone []*tenant
	for id, t := range s.tenants {
		switch {
		case t.active() || len(t.passed) > 0:
			t.activeAt = now
			if now.Sub(t.beatAt) >= s.o.Config.LeaseRenewal && !s.halted {
				alive = append(alive, t)
			}
		case now.Sub(t.activeAt) > s.o.Config.LeaseDuration && !t.inRing && !t.inAdvance && !t.advancing && !t.inSettle && t.settlers == 0:
			delete(s.tenants, id)
			if !t.beatAt.IsZero() {
				gone = append(gone, t)
			}
		}
	}
	s.mu.Unlock()
	each(alive, func(t *tenant) {
		ctx, cancel := s.inTime()
		defer cancel()
		if err := s.o.Store.Beat(ctx, t.id); err != nil {
			s.faults.report("beat", t.id, err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.beatAt.IsZero() {
			t.controlAt = time.Time{} // see ourselves
			kick(s.controlKick)
		}
		t.beatAt = now
	})
	each(gone, func(t *tenant) {
		ctx, cancel := s.inTime()
		defer cancel()
		if err := s.o.Store.Leave(ctx, t.id); err != nil {
			s.faults.report("leave", t.id, err) // it will expire
		}
	})
}

// control reads members and pauses of tenants with work, and starts the
// handover of partitions beyond our share.
func (s *Subscription) control() {
	now := time.Now()
	every := min(controlEvery, s.o.Config.LeaseRenewal)
	s.mu.Lock()
	var list []tenants.ID
	for id, t := range s.tenants {
		if t.active() && now.Sub(t.controlAt) >= every {
			list = append(list, id)
		}
	}
	s.mu.Unlock()
	for chunk := range slices.Chunk(list, controlChunk) {
		ctx, cancel := s.inTime()
		got, err := s.o.Store.Control(ctx, chunk)
		cancel()
		if err != nil {
			s.faults.report("control", "", err)
			continue // those of other lists may be well
		}
		s.mu.Lock()
		for _, id := range chunk {
			if t := s.tenants[id]; t != nil {
				s.apply(t, got[id], now)
			}
		}
		s.mu.Unlock()
	}
}

func (s *Subscription) apply(t *tenant, c Control, now time.Time) {
	t.controlAt = now
	t.setMembers(c.Members)
	if c.Paused != t.paused {
		t.paused = c.Paused
		s.o.Logger.Info("deliveries paused or resumed by an operator", zap.String("tenant", string(t.id)), zap.Bool("paused", c.Paused))
		kick(s.dispatchKick)
		if !c.Paused {
			s.join(t)
			s.offer(t)
		}
	}
	for _, p := range t.surplus(now) {
		p.leaving = true
		kick(s.dispatchKick) // it may be the one about to be handed over
		s.touch(p, now)
	}
}

// garbage collects messages that only waited for other groups.
func (s *Subscription) garbage() {
	now := time.Now()
	s.mu.Lock()
	var work []due[Passed]
	for _, t := range s.tenants {
		if len(t.passed) == 0 || now.Sub(t.collectAt) < min(s.o.Config.LeaseDuration, 5*time.Second) {
			continue
		}
		t.collectAt = now
		list := t.collectable(collectChunk, func(passed) bool { return true })
		work = append(work, due[Passed]{t, list})
	}
	s.mu.Unlock()
	each(work, func(w due[Passed]) { s.collectSome(s.ctx, w.t, w.list) })
}

// collectable takes some of the passed partitions that are wanted; of many, a
// random part.
func (t *tenant) collectable(limit int, wanted func(passed) bool) (list []Passed) {
	for key, mark := range t.passed {
		if len(list) == limit {
			break
		}
		if wanted(mark) {
			list = append(list, Passed{Key: key, Watermark: mark.watermark, Stored: mark.stored})
			mark.tried = true
			t.passed[key] = mark
		}
	}
	return list
}

func (s *Subscription) collectSome(ctx context.Context, t *tenant, list []Passed) {
	stale, err := s.o.Store.Collect(ctx, t.id, list)
	if err != nil {
		s.faults.report("collect", t.id, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range stale {
		delete(t.passed, key) // acquire it and see
	}
}

// collectLast collects what has not been tried yet. Of two groups that pass a
// message at the same moment neither sees the other's watermark, and each leaves
// the message to whoever collects later: that must not be nobody.
func (s *Subscription) collectLast(ctx context.Context, t *tenant) {
	s.mu.Lock()
	list := t.collectable(maxLastCollect, func(p passed) bool { return !p.tried })
	s.mu.Unlock()
	for chunk := range slices.Chunk(list, collectChunk) {
		s.collectSome(ctx, t, chunk)
	}
}

// nudge takes up what had to wait: for handlers, or after an error.
func (s *Subscription) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		if t.fetch.len()+t.wanted.len() > 0 && !t.paused {
			s.offer(t)
		}
		if t.dirty.len() > 0 {
			s.offerSettle(t)
		}
	}
}
