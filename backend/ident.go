package backend

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/tenants"
)

// MaxIdentLength bounds every identifier: bytes for the ASCII ones, characters
// for partition keys and message ids.
const MaxIdentLength = 255

// CheckTenant, CheckTopic, CheckGroup and CheckSubscriberName accept ASCII
// 0x01–0x7F, 1 to 255 bytes, without a trailing space. They return a
// [FieldError].
func CheckTenant(id tenants.ID) error { return checkASCII("tenant", string(id)) }

// CheckTopic is documented at [CheckTenant].
func CheckTopic(topic string) error { return checkASCII("topic", topic) }

// CheckGroup is documented at [CheckTenant].
func CheckGroup(group string) error { return checkASCII("consumer group", group) }

// CheckSubscriberName is documented at [CheckTenant].
func CheckSubscriberName(name string) error { return checkASCII("subscriber name", name) }

// CheckPartitionKey and CheckMessageID accept valid UTF-8, 1 to 255
// characters, without NUL and without a trailing space. They return a
// [FieldError].
func CheckPartitionKey(key string) error { return checkUnicode("partition key", key) }

// CheckMessageID is documented at [CheckPartitionKey].
func CheckMessageID(id string) error { return checkUnicode("message id", id) }

// CheckDeadLetterTopic checks that topic and suffix make a topic, so that a
// topic too long for its dead letters is refused when subscribing.
func CheckDeadLetterTopic(topic, suffix string) error {
	if suffix == "" {
		return &FieldError{Field: "dead letter suffix", Value: `""`, Rule: "must not be empty"}
	}
	if err := checkASCII("dead letter suffix", suffix); err != nil {
		return err
	}
	if n := len(topic) + len(suffix); n > MaxIdentLength {
		return &FieldError{
			Field: "topic", Value: fmt.Sprintf("of %d bytes", len(topic)),
			Rule: fmt.Sprintf("with the dead letter suffix %s it has %d bytes, at most %d fit; shorten either", quote(suffix), n, MaxIdentLength),
		}
	}
	return nil
}

// Validate checks the identity of a message about to be published. Payload and
// metadata sizes are for the backend to check. The error is a [FieldError].
func (m Message) Validate() error {
	for _, err := range []error{
		CheckTenant(m.Tenant), CheckTopic(m.Topic), CheckPartitionKey(m.PartitionKey), CheckMessageID(m.ID),
	} {
		if err != nil {
			return err
		}
	}
	for k, v := range m.Metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return &FieldError{Field: "metadata", Value: quote(k), Rule: "keys and values must be valid UTF-8; put binary data into the payload"}
		}
	}
	return nil
}

func checkASCII(field, s string) error {
	switch i := strings.IndexFunc(s, func(r rune) bool { return r == 0 || r > 0x7F }); {
	case s == "":
		return &FieldError{Field: field, Rule: "must not be empty"}
	case len(s) > MaxIdentLength:
		return &FieldError{Field: field, Value: fmt.Sprintf("of %d bytes", len(s)), Rule: fmt.Sprintf("at most %d bytes", MaxIdentLength)}
	case i >= 0:
		return &FieldError{Field: field, Value: quote(s), Rule: fmt.Sprintf("byte 0x%02X at position %d: only ASCII 0x01 to 0x7F", s[i], i)}
	}
	return checkTrailing(field, s)
}

func checkUnicode(field, s string) error {
	switch n := utf8.RuneCountInString(s); {
	case s == "":
		return &FieldError{Field: field, Rule: "must not be empty"}
	case !utf8.ValidString(s):
		return &FieldError{Field: field, Value: quote(s), Rule: "must be valid UTF-8"}
	case n > MaxIdentLength:
		return &FieldError{Field: field, Value: fmt.Sprintf("of %d characters", n), Rule: fmt.Sprintf("at most %d characters", MaxIdentLength)}
	case strings.IndexByte(s, 0) >= 0:
		return &FieldError{Field: field, Value: quote(s), Rule: "must not contain NUL"}
	}
	return checkTrailing(field, s)
}

// checkTrailing refuses what the database could not tell apart: both
// collations compare as if padded with spaces, so "a" and "a " are one key,
// and "a" sorts with "a\x01" the other way round than in Go.
func checkTrailing(field, s string) error {
	if strings.HasSuffix(s, " ") {
		return &FieldError{Field: field, Value: quote(s), Rule: "must not end with a space: the database compares it as if it were absent"}
	}
	return nil
}
