package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tenantmq/tenantmq/internal/operator"
)

// writeJSON writes a document in one line. What could disturb a terminal is
// escaped: encoding/json leaves control characters above ASCII and those that
// change the direction of text as they are.
func writeJSON(w io.Writer, v any) error {
	var doc bytes.Buffer
	encoder := json.NewEncoder(&doc)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	var safe bytes.Buffer
	for rest := doc.Bytes(); len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r < 0x7F || strconv.IsPrint(r): // below, it is escaped or the document's own
			safe.Write(rest[:size])
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	_, err := w.Write(safe.Bytes())
	return err
}

// emit writes a command's result in the form asked for.
func (a *app) emit(v any, text func() error) error {
	if a.json {
		return writeJSON(a.out, v)
	}
	return text()
}

// line writes a result that fits into one.
func (a *app) line(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format+"\n", args...)
	return err
}

// count is an [operator.Count] in JSON.
type count struct {
	N       int  `json:"n"`
	AtLeast bool `json:"at_least"`
}

func (c count) String() string { return operator.Count(c).String() }

// plural is [operator.Count.Of] for what was counted in full.
func plural(n int, noun string) string { return operator.Count{N: n}.Of(noun) }
