package operator

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	for name, want := range map[string]string{
		"acme": "acme", "orders_dlq": "orders_dlq", "": "''", "a b": "'a b'", "o'neil": `'o'\''neil'`, "$(rm)": "'$(rm)'", "*": "'*'",
		"a\nb": `'"a\nb"'`, `"a"`: `'"\"a\""'`, " a": `'" a"'`, "a'\x01": `'"a'\''\x01"'`, "日本": "'日本'", "\u202eabc": `'"\u202eabc"'`, "~": "'~'",
	} {
		if got := Quote(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// A shell gives every name back, in a form that a flag of the tool takes.
func TestQuotedNamesPassAShell(t *testing.T) {
	for _, name := range hostile {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Quote(name)).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := string(out)
		if strings.HasPrefix(got, `"`) {
			if got, err = strconv.Unquote(got); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		if got != name {
			t.Errorf("%q has become %q", name, got)
		}
	}
}

func TestCommandsLeaveOutWhatIsNotNamed(t *testing.T) {
	got := mqctl("lease release --stale", "tenant", "a b", "topic", "", "group", billing)
	if want := "`mqctl lease release --stale --tenant 'a b' --group billing`"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
