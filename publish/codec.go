package publish

import (
	"encoding/json"
	"fmt"
)

// ContentTypeKey is the metadata key for the format of a payload, a media type.
// It is for people and tools that look at a message; handlers do not need it.
const ContentTypeKey = "content_type"

// ContentTypeJSON is the content type of [JSON].
const ContentTypeJSON = "application/json"

// JSON returns a message whose payload is v as encoding/json writes it, with the
// metadata [ContentTypeKey]: [ContentTypeJSON]. More metadata may be added to
// it. consume.JSON makes handlers for such messages. The error is that of
// json.Marshal, for a v that JSON cannot say; identifiers and size are checked
// on publish.
func JSON(id, partitionKey string, v any) (Message, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return Message{}, fmt.Errorf("encode payload of message %q: %w", id, err)
	}
	return Message{
		ID: id, PartitionKey: partitionKey, Payload: payload,
		Metadata: map[string]string{ContentTypeKey: ContentTypeJSON},
	}, nil
}
