package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shownPayload is how much of a payload is shown, in bytes.
const shownPayload = 256

// payload is a payload in JSON.
type payload struct {
	Size      int    `json:"size"`
	Encoding  string `json:"encoding"` // text, base64 or hex
	Data      string `json:"data"`
	Truncated bool   `json:"truncated"`
}

// showPayload makes a payload harmless: as text if all of it is, which lines and
// tabs are and carriage returns, that write over what stands there, are not.
func showPayload(data []byte, asHex, full bool) payload {
	p := payload{Size: len(data), Encoding: "base64"}
	shown := data
	if !full && len(data) > shownPayload {
		shown, p.Truncated = data[:shownPayload], true
	}
	switch {
	case asHex:
		p.Encoding, p.Data = "hex", hex.EncodeToString(shown)
	case isHarmless(data):
		for p.Truncated && !utf8.Valid(shown) { // cut within a character
			shown = shown[:len(shown)-1]
		}
		p.Encoding, p.Data = "text", string(shown)
	default:
		p.Data = base64.StdEncoding.EncodeToString(shown)
	}
	return p
}

// isHarmless tells text that a terminal shows and does nothing else with.
func isHarmless(data []byte) bool {
	return utf8.Valid(data) && strings.IndexFunc(string(data), isHarmful) < 0
}

// isHarmful leaves joiners out, which emoji and several scripts are written with.
func isHarmful(r rune) bool {
	return !strconv.IsPrint(r) && !strings.ContainsRune("\n\t\u200c\u200d", r)
}

// heading says what is shown below it.
func (p payload) heading() string {
	if p.Truncated {
		return fmt.Sprintf("payload: %s, the beginning as %s (--full shows all)", plural(p.Size, "byte"), p.Encoding)
	}
	return fmt.Sprintf("payload: %s, as %s", plural(p.Size, "byte"), p.Encoding)
}
