package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// order is that of the systems in tables and plots.
var order = []string{"ours", floor, watermill, watermillOne, watermillQueue, river, goqite}

// inOrder returns the systems of r.
func (r result) inOrder() []string {
	return slices.DeleteFunc(slices.Clone(order), func(s string) bool { _, ok := r.Systems[s]; return !ok })
}

// print writes one result with what each system took.
func (r result) print(w io.Writer) {
	t := newTable(
		r.Name, r.Unit, "min", "max", "ours/its",
		"stmts", "commits", "rows read", "bytes", "client µs", "server µs", "allocs", // these a message or a second
		"client MB", "server MB", "gorout.", "p50 ms", "p99 ms", "max ms",
	)
	for _, s := range r.inOrder() {
		c := r.Systems[s]
		var times any = ""
		if q, ok := r.Ratios[s]; ok {
			times = fmt.Sprintf("%.2f", q)
		}
		t.AppendRow(table.Row{
			s, number(&c.Median), number(&c.Min), number(&c.Max), times,
			number(c.Statements), number(c.Commits), number(c.RowsRead), number(c.Bytes),
			number(&c.ClientCPU), number(c.ServerCPU), number(&c.Allocations),
			number(&c.ClientMemory), number(c.ServerMemory), number(&c.Goroutines), number(c.P50), number(c.P99), number(c.MaxMS),
		})
	}
	fmt.Fprintf(w, "%s\n  statements to allocations: a %s\n", t.Render(), r.CostsPer)
	for _, s := range slices.Sorted(maps.Keys(r.Missing)) {
		fmt.Fprintf(w, "  %s: n/a: %s\n", s, firstLine(r.Missing[s]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.More)) {
		fmt.Fprintf(w, "  %s: %s\n", name, number(new(r.More[name])))
	}
	for _, v := range verdicts(r) {
		fmt.Fprintf(w, "  %s\n", v)
	}
}

// summarize writes what matters of all results.
func summarize(w io.Writer, all []result) { fmt.Fprintln(w, summaryTable(all).Render()) }

func summaryTable(all []result) table.Writer {
	t := newTable("scenario", "unit", "ours", "min-max", "floor", "watermill-sql", "River", "stmts/msg", "p50 ms", "p99 ms", "goals")
	for _, r := range all {
		us := r.Systems["ours"]
		times := func(system string) string {
			q, ok := r.Ratios[system]
			if !ok {
				return "-"
			}
			return fmt.Sprintf("%.2fx", q)
		}
		t.AppendRow(table.Row{
			r.Name, r.Unit, number(&r.Ours), number(&us.Min) + "-" + number(&us.Max), times(floor), times(watermill), times(river),
			number(r.StatementsPerMessage), number(r.P50), number(r.P99), strings.Join(verdicts(r), "\n"),
		})
	}
	return t
}

// newTable has names at the left, numbers at the right.
func newTable(headers ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	t.SetStyle(style)
	var header table.Row
	var columns []table.ColumnConfig
	for i, h := range headers {
		header = append(header, h)
		if i > 0 && h != "unit" && h != "goals" {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(columns)
	return t
}

// number is short: three digits that count, or all before the point.
func number(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 100 || *v <= -100:
		return thousands(strconv.FormatFloat(*v, 'f', 0, 64))
	case *v >= 10:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	case *v >= 1:
		return strconv.FormatFloat(*v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(*v, 'g', 3, 64)
	}
}

// thousands parts the digits of a whole number by commas.
func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
