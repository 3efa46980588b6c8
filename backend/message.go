package backend

import (
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// Message is what travels. The queue never looks into Payload.
//
// Tenant, Topic, PartitionKey and ID identify a message; their rules are in
// [Message.Validate]. Offset and PublishedAt are set by the queue and ignored
// on publish. The queue keeps no reference to Payload or Metadata after
// Publish has returned, and a delivered message's slices and maps belong to
// the receiver.
type Message struct {
	Tenant       tenants.ID
	Topic        string
	PartitionKey string
	ID           string
	Payload      []byte
	Metadata     map[string]string

	// Offset orders messages within (tenant, topic, partition key). Offsets of
	// different partitions do not compare.
	Offset uint64
	// PublishedAt is the database's clock at publish, in milliseconds.
	PublishedAt time.Time
}

// Receipt answers for one published message.
type Receipt struct {
	// Offset of the stored row: the first publish's row when Duplicate is set.
	Offset uint64
	// Duplicate reports that (tenant, topic, partition key, id) was stored
	// already and nothing was written. A repeat is recognised for as long as
	// the first row is stored, which ends when every group has settled it.
	Duplicate bool
}
