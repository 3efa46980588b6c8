package engine

import (
	"sync"

	"github.com/tenantmq/tenantmq/tenants"
)

// Wake says that a message was stored.
type Wake struct {
	Tenant tenants.ID
	Topic  string
	Key    string
	Offset uint64
}

// Hub tells the subscriptions of a process what was just published in it, so
// that they need not wait for their next poll. The zero value is ready for
// use.
type Hub struct {
	mu   sync.RWMutex
	subs map[string]map[*Subscription]struct{} // by topic
}

// Notify never blocks on a subscription's work.
func (h *Hub) Notify(wakes ...Wake) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.subs) == 0 {
		return
	}
	for _, w := range wakes {
		for s := range h.subs[w.Topic] {
			s.wake(w)
		}
	}
}

func (h *Hub) add(topic string, s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = make(map[string]map[*Subscription]struct{})
	}
	if h.subs[topic] == nil {
		h.subs[topic] = make(map[*Subscription]struct{})
	}
	h.subs[topic][s] = struct{}{}
}

func (h *Hub) remove(topic string, s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs[topic], s)
	if len(h.subs[topic]) == 0 {
		delete(h.subs, topic)
	}
}
