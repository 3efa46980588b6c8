package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/publish"
)

// MemoryStore goes with the memory backend: one process, nothing kept.
type MemoryStore struct {
	publisher publish.Publisher

	// Held while publishing too: the handler of the message must find the head.
	mu    sync.Mutex
	heads map[string]map[string]*Head // by queue and commit
	green map[string]lastGreen        // by queue
}

type lastGreen struct {
	commit   string
	position uint64
}

func NewMemoryStore(p publish.Publisher) *MemoryStore {
	return &MemoryStore{publisher: p, heads: make(map[string]map[string]*Head), green: make(map[string]lastGreen)}
}

func (s *MemoryStore) Add(ctx context.Context, queue, commit string, out publish.Message) (Head, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.heads[queue][commit]; ok {
		return *h, false, nil
	}
	if _, err := s.publisher.Publish(ctx, landing.Tenant(queue), validateTopic, out); err != nil {
		return Head{}, false, err
	}
	if s.heads[queue] == nil {
		s.heads[queue] = make(map[string]*Head)
	}
	h := &Head{Queue: queue, Commit: commit, State: Pending}
	s.heads[queue][commit] = h
	return *h, true, nil
}

func (s *MemoryStore) Decide(_ context.Context, queue, commit string, to State, position uint64, detail string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.heads[queue][commit]
	if !ok || h.State != Pending {
		return nil
	}
	h.State, h.Detail = to, detail
	if to == Green && position > s.green[queue].position {
		s.green[queue] = lastGreen{commit: commit, position: position}
	}
	return nil
}

func (s *MemoryStore) Get(_ context.Context, queue, commit string) (Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.heads[queue][commit]
	if !ok {
		return Head{}, notFound(queue, commit)
	}
	return *h, nil
}

func (s *MemoryStore) LastGreen(_ context.Context, queue string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.green[queue].commit, nil
}

func notFound(queue, commit string) error {
	return fmt.Errorf("%w: head %s of queue %q", backend.ErrNotFound, commit, queue)
}
