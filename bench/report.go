package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// generated is the part of the page that a run writes.
var generated = regexp.MustCompile(`(?s)(<!-- figures, written by make bench -->\n).*(<!-- end of figures -->)`)

// renew writes the machine, the table and the plots into the page.
func renew(file string, m machine, all []result) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s strings.Builder
	fmt.Fprintf(&s, "\n%s.\n\n%s\n", m, summaryTable(all).RenderMarkdown())
	for _, c := range charts(all) {
		fmt.Fprintf(&s, "\n![%s](bench/%s.svg)\n", c.title, c.name)
	}
	if !generated.Match(page) {
		return fmt.Errorf("%s: no place for the figures; want a line %q and one %q", file, "<!-- figures, written by make bench -->", "<!-- end of figures -->")
	}
	renewed := generated.ReplaceAllFunc(page, func(old []byte) []byte {
		parts := generated.FindSubmatch(old)
		return []byte(string(parts[1]) + s.String() + "\n" + string(parts[2]))
	})
	return os.WriteFile(file, renewed, 0o644)
}
