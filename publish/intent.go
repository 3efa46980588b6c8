package publish

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/backend"
)

// IntentID names the occasion for a message: the entity it is about and what
// happened to it. The same occasion gives the same id, so a handler that runs
// twice publishes once; another occasion gives another id, so a later wake-up
// of the same entity is not taken for a repeat of an earlier one.
//
//	IntentID("request/17", "checked", "build 4") == "request/17:checked:build 4"
//
// The id is a valid message id for every input. Parts are joined by ":" and
// cannot run into each other: ":", "%", "~", control characters, invalid UTF-8
// and a space at the end of a part are written as % and two hexadecimal digits
// for each byte; the single empty part is "%". An id that would be longer than
// 255 characters keeps its beginning and ends in "~" and the SHA-256 of the
// whole, base64. The encoding does not change between releases.
func IntentID(entity string, cause ...string) string {
	var b strings.Builder
	writePart(&b, entity)
	for _, part := range cause {
		b.WriteByte(':')
		writePart(&b, part)
	}
	id := b.String()
	switch {
	case id == "":
		return "%"
	case utf8.RuneCountInString(id) <= backend.MaxIdentLength:
		return id
	}
	sum := sha256.Sum256([]byte(id))
	digest := base64.RawURLEncoding.EncodeToString(sum[:])
	return firstRunes(id, backend.MaxIdentLength-len("~")-len(digest)) + "~" + digest
}

func writePart(b *strings.Builder, part string) {
	for i := 0; i < len(part); {
		r, size := utf8.DecodeRuneInString(part[i:])
		switch {
		case r == utf8.RuneError && size == 1,
			r < ' ', r == 0x7F, r == ':', r == '%', r == '~',
			r == ' ' && i == len(part)-1:
			fmt.Fprintf(b, "%%%02X", part[i]) // all of these are one byte long
		default:
			b.WriteString(part[i : i+size])
		}
		i += size
	}
}

// firstRunes returns the first n characters of a string that has more.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
