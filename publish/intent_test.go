package publish_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/publish"
)

func intentID(parts []string) string { return publish.IntentID(parts[0], parts[1:]...) }

// Stored ids outlive a release: these may never change.
func TestIntentIDIsStable(t *testing.T) {
	long := strings.Repeat("ü", 256)
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{[]string{"request/17", "checked", "build 4"}, "request/17:checked:build 4"},
		{[]string{"a", "bc"}, "a:bc"},
		{[]string{"ab", "c"}, "ab:c"},
		{[]string{"a:bc"}, "a%3Abc"},
		{[]string{"a"}, "a"},
		{[]string{"a", ""}, "a:"},
		{[]string{""}, "%"},
		{[]string{"", ""}, ":"},
		{[]string{"%"}, "%25"},
		{[]string{"a ", " b "}, "a%20: b%20"},
		{[]string{"~\x00\x1f\x7f\xff\n"}, "%7E%00%1F%7F%FF%0A"},
		{[]string{long[:2*255]}, long[:2*255]},
		{[]string{long}, long[:2*211] + "~O5KfXkduP6yXwAyh8U08lfLjb1ZVJcg8KsOKt5VnbNw"},
	} {
		if got := intentID(c.parts); got != c.want {
			t.Errorf("%q: got %q, want %q", c.parts, got, c.want)
		}
	}
}

// parts draws what could confuse the encoding: separators, escapes, digests.
func parts(t *rapid.T, label string) []string {
	part := rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "b", ":", "%", "3A", "20", "~", " ", "\x00", "\xff", "\uFFFD", "é", "e\u0301", "𝄞",
		}), 0, 5), func(s []string) string { return strings.Join(s, "") }),
		rapid.Map(rapid.IntRange(200, 300), func(n int) string { return strings.Repeat("é", n) }),
		rapid.Map(rapid.IntRange(70, 90), func(n int) string { return strings.Repeat("\x00", n) }),
	)
	return rapid.SliceOfN(part, 1, 4).Draw(t, label)
}

func TestIntentIDIsAlwaysAValidID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := parts(t, "parts")
		id := intentID(parts)
		if err := backend.CheckMessageID(id); err != nil {
			t.Fatalf("%q: %v", id, err)
		}
		if again := intentID(slices.Clone(parts)); again != id {
			t.Fatalf("%q, then %q", id, again)
		}
		if entity := parts[0]; utf8.ValidString(entity) && utf8.RuneCountInString(entity) <= 211 &&
			!strings.ContainsFunc(entity, func(r rune) bool { return r <= ' ' || strings.ContainsRune(":%~\x7f", r) }) &&
			!strings.HasPrefix(id, entity) {
			t.Fatalf("%q does not begin with the entity %q", id, entity)
		}
	})
}

// An id that was not cut can be read back, so no two occasions share one.
func TestIntentIDCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := parts(t, "parts")
		id := intentID(want)
		if strings.Contains(id, "~") {
			if n := utf8.RuneCountInString(id); n != backend.MaxIdentLength {
				t.Fatalf("%q was cut to %d characters", id, n)
			}
			return
		}
		if id == "%" {
			id = ""
		}
		got := strings.Split(id, ":")
		for i := range got {
			var err error
			if got[i], err = url.PathUnescape(got[i]); err != nil {
				t.Fatalf("%q: %v", id, err)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q reads as %q, want %q", id, got, want)
		}
	})
}

func TestIntentIDTellsOccasionsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts(t, "a"), parts(t, "b")
		if rapid.Bool().Draw(t, "near") { // the same but for the very end
			b = slices.Clone(a)
			b[len(b)-1] += rapid.SampledFrom([]string{"", " ", ":", "~", "a", "\x00"}).Draw(t, "tail")
		}
		if (intentID(a) == intentID(b)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q: ids %q and %q", a, b, intentID(a), intentID(b))
		}
	})
}
