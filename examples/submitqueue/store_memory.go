package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/publish"
)

// MemoryStore goes with the memory backend: one process, nothing kept.
type MemoryStore struct {
	publisher publish.Publisher

	// Held while publishing too: the handler of the message must find the
	// state that it was published with.
	mu     sync.Mutex
	queues map[string]map[string]*Request // by queue and change
}

func NewMemoryStore(p publish.Publisher) *MemoryStore {
	return &MemoryStore{publisher: p, queues: make(map[string]map[string]*Request)}
}

func (s *MemoryStore) Accept(ctx context.Context, queue, change string, out Outgoing) (Request, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.queues[queue][change]; ok {
		return r.clone(), false, nil
	}
	if err := s.publish(ctx, queue, out); err != nil {
		return Request{}, false, err
	}
	r := &Request{ID: requestID(queue, change), Queue: queue, Change: change}
	r.enter(Accepted, "")
	if s.queues[queue] == nil {
		s.queues[queue] = make(map[string]*Request)
	}
	s.queues[queue][change] = r
	return r.clone(), true, nil
}

func (s *MemoryStore) Advance(ctx context.Context, queue, change string, from, to State, detail string, out ...Outgoing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.queues[queue][change]
	if !ok {
		return notFound(queue, change)
	}
	if r.State != from {
		return nil
	}
	if err := s.publish(ctx, queue, out...); err != nil {
		return err
	}
	r.enter(to, detail)
	return nil
}

func (s *MemoryStore) Get(_ context.Context, queue, change string) (Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.queues[queue][change]
	if !ok {
		return Request{}, notFound(queue, change)
	}
	return r.clone(), nil
}

func (s *MemoryStore) List(_ context.Context, queue, after string, limit int) ([]Request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Request{}
	for _, change := range slices.Sorted(maps.Keys(s.queues[queue])) {
		if change > after && len(list) < limit {
			list = append(list, s.queues[queue][change].clone())
		}
	}
	return list, nil
}

func (s *MemoryStore) Count(_ context.Context, queue string) (map[State]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := make(map[State]int)
	for _, r := range s.queues[queue] {
		count[r.State]++
	}
	return count, nil
}

func (s *MemoryStore) publish(ctx context.Context, queue string, out ...Outgoing) error {
	for _, m := range out {
		if _, err := s.publisher.Publish(ctx, landing.Tenant(queue), m.Topic, m.Message); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) enter(s State, detail string) {
	r.State = s
	r.History = append(r.History, Entry{State: s, At: time.Now().UnixMilli(), Detail: detail})
}

func (r *Request) clone() Request {
	c := *r
	c.History = slices.Clone(r.History)
	return c
}

func notFound(queue, change string) error {
	return fmt.Errorf("%w: request %q", backend.ErrNotFound, requestID(queue, change))
}
