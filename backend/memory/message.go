package memory

import (
	"bytes"
	"maps"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// message is a stored message. Once stored it never changes, so that it may be
// read without the queue's lock, and payload and metadata may be shared with
// its dead letter; they are copied for and from everybody outside.
type message struct {
	id          string
	offset      uint64
	payload     []byte
	metadata    map[string]string
	publishedAt int64 // epoch milliseconds, as precise as the MySQL backend

	failure  *backend.Failure // of a dead letter
	redriven *redriven
}

// redriven is kept with a message that came back from a dead-letter topic.
type redriven struct {
	group string // the only one to see it
	id    string // as handlers see it
}

// newMessage copies what the caller owns.
func newMessage(m backend.Message) *message {
	row := &message{id: m.ID, payload: bytes.Clone(m.Payload)}
	if len(m.Metadata) > 0 {
		row.metadata = maps.Clone(m.Metadata)
	}
	return row
}

// view returns a copy of a message as a group sees it. at supplies tenant,
// topic and partition key.
func (m *message) view(at backend.Message, group string) engine.Message {
	at.ID = m.id
	at.Offset = m.offset
	at.Payload = bytes.Clone(m.payload)
	at.Metadata = maps.Clone(m.metadata)
	at.PublishedAt = time.UnixMilli(m.publishedAt).UTC()
	v := engine.Message{Message: at}
	if m.failure != nil {
		failure := *m.failure
		v.Failure = &failure
	}
	if m.redriven != nil {
		v.ID = m.redriven.id
		v.Skip = m.redriven.group != group
	}
	return v
}
