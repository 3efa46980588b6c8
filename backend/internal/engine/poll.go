package engine

import (
	"slices"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// tenantChunk is the number of tenants one listing statement covers.
	tenantChunk = 1000
	// listPage bounds the partitions one statement lists. It stays below the
	// 10,000 rows a Vitess select may return.
	listPage = 2000
	// listSteps bounds the statements of one listing: the rest is listed next.
	listSteps = 16
	// busyPoll is the shortest time between listings.
	busyPoll = 5 * time.Millisecond
	// statementEvery bounds the pace of an idle subscription with many
	// tenants.
	statementEvery = 50 * time.Millisecond
	// slowListing is how long a listing may take before the pace follows it: a
	// server whose statistics take partitions for short ones reads every message
	// to list them, and must not be kept at that. Then listings take a fifth of
	// the time, up to maxSlowPoll apart.
	slowListing = 25 * time.Millisecond
	maxSlowPoll = time.Second
)

// poll lists partitions with messages: often while it finds new ones, then
// ever more rarely down to the configured interval.
func (s *Subscription) poll() {
	idle := s.idlePoll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	wait := time.Duration(0)
	for {
		select {
		case <-timer.C:
		case <-s.pollKick:
		case <-s.stopping:
			return
		}
		started := time.Now()
		found, err := s.look()
		took := time.Since(started)
		s.met.pollRounds.RecordDuration(took)
		busy := min(max(busyPoll, took), idle)
		switch {
		case err != nil:
			s.faults.report("discover", "", err)
			wait = s.faults.pause()
		case found:
			wait = busy
		default:
			wait = min(max(wait, busy)*2, idle)
		}
		if took > slowListing {
			wait = max(wait, min(4*took, maxSlowPoll))
		}
		timer.Reset(wait)
	}
}

// idlePoll is the time between listings while there is no work.
func (s *Subscription) idlePoll() time.Duration {
	chunks := (len(s.list) + tenantChunk - 1) / tenantChunk
	if chunks > 1 {
		return max(s.o.Config.PollInterval, time.Duration(chunks)*statementEvery)
	}
	return s.o.Config.PollInterval
}

// look makes one listing and tells whether it brought anything new.
func (s *Subscription) look() (found bool, err error) {
	s.mu.Lock()
	s.listing++
	s.listingAt = time.Now()
	s.looking = true
	clear(s.recent)
	var paged []*tenant
	plain := s.list
	for _, t := range s.tenants {
		if t.paged {
			paged = append(paged, t)
		}
	}
	if len(paged) > 0 {
		plain = slices.DeleteFunc(slices.Clone(s.list), func(id tenants.ID) bool {
			t := s.tenants[id]
			return t != nil && t.paged
		})
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.looking = false
		if err == nil {
			s.polledAt = time.Now()
		}
		s.mu.Unlock()
	}()

	work := slices.Collect(slices.Chunk(plain, tenantChunk))
	for steps := 0; len(work) > 0 && steps < listSteps; steps++ {
		list := work[0]
		work = work[1:]
		rows, err := s.o.Store.Discover(s.ctx, list, "", listPage)
		if err != nil {
			return found, err
		}
		s.mu.Lock()
		if len(rows) >= listPage { // the last tenant may be cut short, those behind it are missing
			last := rows[len(rows)-1]
			seen := make(map[tenants.ID]bool)
			for _, r := range rows {
				seen[r.Tenant] = true
			}
			rest := slices.DeleteFunc(slices.Clone(list), func(id tenants.ID) bool { return seen[id] })
			if len(rest) > 0 {
				work = append(work, rest)
			}
			t := s.get(last.Tenant)
			t.paged, t.cursor = true, last.Key
			list = slices.DeleteFunc(slices.Clone(list), func(id tenants.ID) bool { return !seen[id] || id == last.Tenant })
		}
		found = s.note(rows) || found
		s.complete(list, rows)
		s.mu.Unlock()
	}
	for _, t := range paged {
		for range listSteps {
			news, err := s.turn(t)
			if err != nil {
				return found, err
			}
			if found = found || news; news || t.cursor == "" {
				break // there is something to do first, or all has been seen
			}
		}
	}
	return found, nil
}

// turn looks at a tenant's next page and tells whether it brought anything new.
func (s *Subscription) turn(t *tenant) (news bool, err error) {
	rows, err := s.o.Store.Discover(s.ctx, []tenants.ID{t.id}, t.cursor, listPage)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.note(rows)
	switch {
	case len(rows) >= listPage:
		t.cursor = rows[len(rows)-1].Key
	case t.cursor == "":
		t.paged = false
		s.complete([]tenants.ID{t.id}, rows)
	default: // round once; what was not seen on the way is gone
		t.cursor = ""
		t.expire(s.listingAt)
	}
	return news, nil
}

// note takes in what a listing shows and tells whether any of it is new.
func (s *Subscription) note(rows []Stored) (found bool) {
	now := time.Now()
	for _, r := range rows {
		t := s.tenants[r.Tenant]
		if t != nil {
			if p := t.parts[r.Key]; p != nil {
				found = s.announce(p, r.Head, r.Tail, now) || found
				continue
			}
			if r.Tail <= t.passed[r.Key].watermark {
				continue
			}
		}
		if gone, ok := s.recent[partKey{r.Tenant, r.Key}]; ok && r.Tail <= gone {
			continue // read before it was drained
		}
		if s.want(s.get(r.Tenant), r.Key, r.Head, r.Tail, now) {
			found = true
		}
	}
	return found
}

// announce tells a partition we hold of messages that exist.
func (s *Subscription) announce(p *partition, head, tail uint64, now time.Time) (news bool) {
	if tail > p.tail {
		p.tail, news = tail, true
	}
	if head <= p.fetched && !p.known(head) {
		p.late = append(p.late, head) // committed after we had read on
		news = true
	}
	if news {
		s.touch(p, now)
	}
	return news
}

// want makes a partition a candidate and tells whether it was not one yet.
func (s *Subscription) want(t *tenant, key string, head, tail uint64, now time.Time) bool {
	c := t.candidates[key]
	fresh := c == nil
	if fresh {
		c = &candidate{key: key, head: head, tail: tail, since: now}
		t.candidates[key] = c
	}
	c.head, c.tail = min(c.head, head), max(c.tail, tail)
	c.seen = s.listing
	t.activeAt = now
	if !c.queued && !c.retryAt.After(now) && (t.ours(key) || now.Sub(c.since) >= s.orphanAfter()) {
		c.queued = true
		t.wanted.push(c)
		s.offer(t)
	}
	return fresh
}

// orphanAfter is how long a partition may wait for the subscriber it falls to
// before anybody takes it. A lease that is held is only read, never contended
// for.
func (s *Subscription) orphanAfter() time.Duration {
	return min(2*s.o.Config.LeaseDuration, starving)
}

// complete draws the conclusions from a listing that had all of the tenants'
// partitions: what is not in it is gone.
func (s *Subscription) complete(list []tenants.ID, rows []Stored) {
	listed := make(map[tenants.ID][]Stored)
	for _, r := range rows {
		listed[r.Tenant] = append(listed[r.Tenant], r)
	}
	for _, id := range list {
		t := s.tenants[id]
		if t == nil {
			continue
		}
		view := make([]string, 0, len(listed[id]))
		stored := make(map[string]struct{}, len(t.passed))
		for _, r := range listed[id] {
			if r.Tail <= t.passed[r.Key].watermark {
				stored[r.Key] = struct{}{}
				continue
			}
			view = append(view, r.Key)
		}
		slices.Sort(view)
		if !slices.Equal(view, t.view) {
			t.view, t.shareValid = view, false
		}
		for key := range t.passed {
			if _, ok := stored[key]; !ok {
				delete(t.passed, key)
			}
		}
		for key, c := range t.candidates {
			if c.seen < s.listing && !c.since.After(s.listingAt) {
				delete(t.candidates, key)
			}
		}
	}
}

// expire forgets candidates that a whole round of pages has not shown.
func (t *tenant) expire(before time.Time) {
	for key, c := range t.candidates {
		if !c.queued && c.since.Before(before.Add(-time.Minute)) {
			delete(t.candidates, key)
		}
	}
}

// wake takes in a publish of this process.
func (s *Subscription) wake(w Wake) {
	if !s.o.Tenants.Contains(w.Tenant) {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted {
		return
	}
	t := s.get(w.Tenant)
	if p := t.parts[w.Key]; p != nil {
		s.announce(p, w.Offset, w.Offset, now)
		return
	}
	if w.Offset <= t.passed[w.Key].watermark {
		return
	}
	s.want(t, w.Key, w.Offset, w.Offset, now)
}
