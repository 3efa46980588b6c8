package main

import (
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tenantmq/tenantmq/internal/operator"
)

// The widest names give way first, numbers and times never, and no line is wider
// than the terminal.
func TestTableIsCutToTheTerminal(t *testing.T) {
	header := table.Row{"tenant", "lag", "oldest", "owner"}
	rows := []table.Row{{"acme", 1234567, "12 min 5 s", strings.Repeat("世界", 20)}, {strings.Repeat("t", 30), 1, "-", "b"}}
	for width, want := range map[int]string{
		0: "TENANT                              LAG  OLDEST      OWNER\n" +
			"acme                            1234567  12 min 5 s  " + strings.Repeat("世界", 20) + "\n" +
			strings.Repeat("t", 30) + "        1  -           b\n",
		50: "TENANT             LAG  OLDEST      OWNER\n" +
			"acme           1234567  12 min 5 s  世界世界世界…\n" +
			"tttttttttttt…        1  -           b\n",
		20: "TENANT        LAG  …\nacme      1234567  …\nttttttt…        1  …\n",
	} {
		var out strings.Builder
		if err := renderTable(&out, width, header, rows); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("width %d: a line has %d: %s", width, n, line)
			}
		}
		if out.String() != want {
			t.Errorf("width %d: got\n%swant\n%s", width, out.String(), want)
		}
	}
}

func TestNumbersHaveTheirPlural(t *testing.T) {
	for want, c := range map[string]count{"0 messages": {}, "1 message": {N: 1}, "1+ messages": {N: 1, AtLeast: true}, "2 messages": {N: 2}} {
		if got := operator.Count(c).Of("message"); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}
