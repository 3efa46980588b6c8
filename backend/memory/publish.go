package memory

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
	"github.com/tenantmq/tenantmq/tenants"
)

// Publish implements [backend.Publisher]. All messages are stored, or, on a
// [backend.FieldError] or [backend.ErrClosed], none.
func (q *Queue) Publish(ctx context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	rows := make([]*message, len(msgs))
	for i, m := range msgs {
		if err := q.checkMessage(m); err != nil {
			return nil, err
		}
		rows[i] = newMessage(m)
	}
	if err := q.check(ctx); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}

	receipts := make([]backend.Receipt, len(msgs))
	wakes := make([]engine.Wake, 0, len(msgs))
	q.tables.mu.Lock()
	now := q.config.Now()
	for i, m := range msgs {
		row, duplicate := q.tables.insert(now, m.Tenant, m.Topic, m.PartitionKey, rows[i])
		receipts[i] = backend.Receipt{Offset: row.offset, Duplicate: duplicate}
		if !duplicate {
			wakes = append(wakes, engine.Wake{Tenant: m.Tenant, Topic: m.Topic, Key: m.PartitionKey, Offset: row.offset})
		}
	}
	q.tables.mu.Unlock()
	q.metrics.published.Batch(len(msgs))
	q.metrics.published.Count(len(msgs), func(i int) engine.Receipt {
		return engine.Receipt{Tenant: msgs[i].Tenant, Topic: msgs[i].Topic, Duplicate: receipts[i].Duplicate}
	})
	q.hub.Notify(wakes...)
	return receipts, nil
}

// PublishTx returns [backend.ErrNotSupported].
func (q *Queue) PublishTx(context.Context, *sql.Tx, ...backend.Message) ([]backend.Receipt, error) {
	return nil, fmt.Errorf("publish in a transaction: %w: the memory backend has no database; use Publish, or the mysql backend for an outbox", backend.ErrNotSupported)
}

func (q *Queue) checkMessage(m backend.Message) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if n := len(m.Payload); n > q.config.MaxPayload {
		return tooLarge("payload", n, q.config.MaxPayload)
	}
	if len(m.Metadata) == 0 {
		return nil
	}
	var encoded bytes.Buffer
	enc := json.NewEncoder(&encoded)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m.Metadata); err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	if n := encoded.Len() - len("\n"); n > q.config.MaxMetadata {
		return tooLarge("metadata", n, q.config.MaxMetadata)
	}
	return nil
}

func tooLarge(field string, size, limit int) error {
	return &backend.FieldError{
		Field: field, Value: fmt.Sprintf("of %d bytes", size),
		Rule: fmt.Sprintf("at most %d bytes; publish a reference to it instead, or raise max %s", limit, field),
		Err:  backend.ErrTooLarge,
	}
}

// insert stores a message at the next offset, unless its id is stored already:
// then it returns what is, and true. Callers hold mu.
func (tb *tables) insert(now time.Time, tenant tenants.ID, topic, key string, m *message) (stored *message, duplicate bool) {
	t := tb.openTopic(tenant, topic)
	p := t.open(key)
	if stored, ok := p.ids[m.id]; ok {
		return stored, true
	}
	tb.offset++
	m.offset = tb.offset
	m.publishedAt = now.UnixMilli()
	p.add(m)
	t.file(p)
	return m, false
}
