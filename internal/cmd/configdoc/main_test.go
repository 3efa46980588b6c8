package main

import (
	"strings"
	"testing"
)

func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := document("../../../mqfx/config.go")
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `mq.") {
			continue
		}
		keys++
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 5 || cells[4] == "" {
			t.Errorf("no meaning: %s", line)
			continue
		}
		if kind := cells[1]; (kind == "duration" || strings.Contains(kind, "number")) && cells[3] == "" {
			t.Errorf("no bounds: %s", line)
		}
	}
	if keys < 30 {
		t.Errorf("%d keys in\n%s", keys, text)
	}
	for _, row := range []string{
		"| `mq.pool.max_open` | whole number | `32` | 4 to 10000 | `max_open` connections",
		"| `mq.dsn`, overridden by `MQ_DSN` | text |  |  | `dsn` of the database, required by the mysql backend unless `mqfx.WithDB` hands",
		"| `mq.subscription.tenant_weights` | tenants and whole numbers |  | 1 to 1000 |",
	} {
		if !strings.Contains(text, "\n"+row) {
			t.Errorf("no row %s", row)
		}
	}
}
