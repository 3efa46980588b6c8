package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/jedib0t/go-pretty/v6/table"
)

// What is shown of a name cannot disturb the terminal, and is the same name when
// it is given back.
func TestShownNameIsTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile)).Draw(t, "name")
		shown := quote(name)
		for _, r := range shown {
			if !strconv.IsPrint(r) {
				t.Errorf("%q is shown with %q in it", name, r)
			}
		}
		if back, err := unquote(shown); err != nil || back != name {
			t.Errorf("%q is shown as %s, which is taken for %q, %v", name, shown, back, err)
		}
	})
	for name, want := range map[string]string{"plain": "plain", "two words": "two words", "": `""`, " a": `" a"`, `"`: `"\""`, "世界": "世界"} {
		if got := quote(name); got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
}

func TestJSONCannotDisturbTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile)).Draw(t, "name")
		var doc bytes.Buffer
		if err := writeJSON(&doc, []string{name}); err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(doc.String(), "\n") {
			if !strconv.IsPrint(r) {
				t.Errorf("%q has %q in it", doc.String(), r)
			}
		}
		var back []string
		if err := json.Unmarshal(doc.Bytes(), &back); err != nil || utf8.ValidString(name) && back[0] != name {
			t.Errorf("%q becomes %q, %v", name, back, err)
		}
	})
}

func TestMoments(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 30, 14, 5, 31, 0, zone)
	a := &app{now: func() time.Time { return now }}
	for want, at := range map[string]time.Time{
		"14:02:26, 3 min 5 s ago":          now.Add(-185 * time.Second),
		"14:05:31, 0 ms ago":               now,
		"14:06:11, in 40 s":                now.Add(40 * time.Second),
		"2026-11-27 10:05:31, 3 d 4 h ago": now.Add(-76 * time.Hour),
		"2025-11-30 14:05:31, 365 d ago":   now.AddDate(-1, 0, 0),
		"09:05:31, 5 h ago":                now.Add(-5 * time.Hour),
		"-":                                {},
	} {
		if got := a.moment(at); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
	if got := a.zone(); got != "+01:00" {
		t.Errorf("the zone is %q", got)
	}
	// With daylight saving the zone of then may be another: one header is for all.
	then := now.Add(-time.Minute).In(time.FixedZone("", 7200))
	if got := a.zonedMoment(then); got != "14:04:31 +01:00, 1 min ago" {
		t.Errorf("with its zone: %q", got)
	}
}

// Columns begin at the same place on the screen, wide characters before them or
// not, and numbers end there.
func TestTableIsAlignedByWidth(t *testing.T) {
	var out strings.Builder
	if err := renderTable(&out, 0, table.Row{"key", "n", "owner"}, []table.Row{{"世界", 7, "a"}, {"abcd", 1234, "b"}, {"x", 1, "c"}}); err != nil {
		t.Fatal(err)
	}
	const want = "KEY      N  OWNER\n世界     7  a\nabcd  1234  b\nx        1  c\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestPayloadIsShownSafely(t *testing.T) {
	for _, c := range []struct {
		data string
		want payload
	}{
		{"", payload{0, "text", "", false}},
		{"line\n\tand tab 👩‍👧", payload{len("line\n\tand tab 👩‍👧"), "text", "line\n\tand tab 👩‍👧", false}},
		{"over\rwritten", payload{12, "base64", "b3Zlcg13cml0dGVu", false}},
		{"\x1b[31m", payload{5, "base64", "G1szMW0=", false}},
		{"\u009b", payload{2, "base64", "wps=", false}},
		{"\xff", payload{1, "base64", "/w==", false}},
		{strings.Repeat("a", 255) + "ü", payload{257, "text", strings.Repeat("a", 255), true}},
	} {
		if got := showPayload([]byte(c.data), false, false); got != c.want {
			t.Errorf("%q is shown as %+v, want %+v", c.data, got, c.want)
		}
	}
}
