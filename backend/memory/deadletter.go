package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// bury copies messages given up to the dead-letter topic. A message that is
// there already is not copied again; one that another group, or an earlier
// message of that id, has put there keeps its place.
func (s *store) bury(now time.Time, tenant tenants.ID, p *partition, letters []engine.DeadLetter) []engine.Wake {
	if s.deadLetter == "" {
		return nil
	}
	wakes := make([]engine.Wake, 0, len(letters))
	for _, d := range letters {
		m := newMessage(d.Message)
		if kept, ok := p.messages.Get(d.Message.Offset); ok {
			// Not the copy that the handler got: it may have written to it.
			m.payload, m.metadata = kept.payload, kept.metadata
		}
		m.failure = &backend.Failure{
			OriginalTopic:  s.topicName,
			OriginalID:     d.Message.ID,
			OriginalOffset: d.Message.Offset,
			Group:          s.group,
			Attempts:       d.Attempts,
			LastError:      d.Error,
			FailedAt:       time.UnixMilli(now.UnixMilli()).UTC(),
		}
		if s.tables.insertAs(now, tenant, s.deadLetter, p.key, m, m.failure) {
			wakes = append(wakes, engine.Wake{Tenant: tenant, Topic: s.deadLetter, Key: p.key, Offset: m.offset})
		}
	}
	return wakes
}

// insertAs stores a message under its id or, where another message has that,
// under one derived from it and from how it failed. It returns false when the
// same failure is stored already. Callers hold mu.
func (tb *tables) insertAs(now time.Time, tenant tenants.ID, topic, key string, m *message, how *backend.Failure) bool {
	id := m.id
	for n := 0; ; n++ {
		stored, taken := tb.insert(now, tenant, topic, key, m)
		if !taken {
			return true
		}
		if f := stored.failure; f != nil && f.Group == how.Group && f.OriginalOffset == how.OriginalOffset {
			return false
		}
		m.id = derivedID(id, how, n)
	}
}

// redrive moves a dead letter back to where it came from, for the group that
// gave it up.
func (tb *tables) redrive(now time.Time, tenant tenants.ID, topic, key, id string) (engine.Wake, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t := tb.topic(tenant, topic)
	p := t.find(key)
	if p == nil || p.ids[id] == nil || p.ids[id].failure == nil {
		return engine.Wake{}, backend.ErrNotFound
	}
	dead := p.ids[id]
	how := dead.failure
	m := &message{
		id: how.OriginalID, payload: dead.payload, metadata: dead.metadata,
		redriven: &redriven{group: how.Group, id: how.OriginalID},
	}
	tb.insertAs(now, tenant, how.OriginalTopic, key, m, how)
	p.remove(dead.offset)
	t.file(p)
	tb.forget(tenant, topic)
	return engine.Wake{Tenant: tenant, Topic: how.OriginalTopic, Key: key, Offset: m.offset}, nil
}

// derivedID is always the same for the same failure. n counts the ids that were
// taken as well.
func derivedID(id string, how *backend.Failure, n int) string {
	const hashLength = 32
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s%s", how.Group, how.OriginalOffset, id, strings.Repeat("\x00", n)))
	chars := []rune(id)
	chars = chars[:min(len(chars), backend.MaxIdentLength-1-hashLength)]
	return string(chars) + "~" + hex.EncodeToString(sum[:hashLength/2])
}
