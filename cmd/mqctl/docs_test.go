package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func manual(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/mqctl.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPageListsEveryCommand(t *testing.T) {
	listed := make(map[string]bool)
	for _, match := range regexp.MustCompile("(?m)^\\| `(mqctl [a-z ]+)` \\|").FindAllStringSubmatch(manual(t), -1) {
		listed[match[1]] = true
	}
	commands(new(app).root(), func(c *cobra.Command) {
		if c.HasSubCommands() {
			return
		}
		if !listed[c.CommandPath()] {
			t.Errorf("%s is not in the table of commands", c.CommandPath())
		}
		delete(listed, c.CommandPath())
	})
	for name := range listed {
		t.Errorf("the table lists %q, which does not exist", name)
	}
}

// Everything on the page that looks like a call is one, flags included.
func TestPageCallsOnlyWhatExists(t *testing.T) {
	calls := regexp.MustCompile("(?m)^    mqctl .*$|`mqctl [^`]*`").FindAllString(manual(t), -1)
	if len(calls) < 40 {
		t.Errorf("only %d calls are found: %q", len(calls), calls)
	}
	for _, call := range calls {
		checkCommandLine(t, strings.Trim(strings.ReplaceAll(call, "\n", " "), "`"))
	}
}

// The page has the keys of every document, in their order.
func TestPageTellsTheKeys(t *testing.T) {
	rows := make(map[string][]string)
	for line := range strings.Lines(manual(t)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		var keys []string
		for cell := range strings.SplitSeq(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cells[2], ""), ",") {
			keys = append(keys, strings.Trim(cell, " `"))
		}
		rows[strings.TrimSpace(cells[1])] = keys
	}
	for name, doc := range map[string]any{
		"`topics`": topicRow{}, "`groups`": groupRow{}, "`offsets`": offsetRow{}, "`leases`": leaseRow{}, "`subscribers`": subscriberRow{},
		"`deadletters`": deadLetterRow{}, "`message list`": messageRow{}, "`lag`": lagRow{}, "`doctor`": findingRow{},
		"`top`": frame{}, "a tenant of `top`": topRow{}, "`message show`": messageDoc{}, "a `payload`": payload{},
		"a group of `message show`": stateDoc{}, "a `failure`": failure{}, "`message delete`, `message redrive`": identityDoc{},
		"`message publish`": publishDoc{}, "a duplicate": duplicateDoc{}, "`deadletter redrive`": redrivenDoc{},
		"`pause`, `resume`": pausedDoc{}, "`group drop`": droppedDoc{}, "`lease release`": releasedDoc{}, "`purge`": purgedDoc{},
		"`migrate up`": migratedDoc{}, "`migrate status`": schemaDoc{}, "`version`": versionDoc{}, "a state of `message list`": deliveryDoc{}, "`migrate sql`": sqlDoc{}, "`validate`": validDoc{},
	} {
		if keys := keysOf(reflect.TypeOf(doc)); !slices.Equal(keys, rows[name]) {
			t.Errorf("%s: the page has %q, the document %q", name, rows[name], keys)
		}
	}
}

func keysOf(doc reflect.Type) []string {
	var keys []string
	for field := range doc.Fields() {
		if field.Anonymous {
			keys = append(keys, keysOf(field.Type)...)
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	return keys
}
