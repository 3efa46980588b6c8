package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// plain has no lines and colours, and two blanks between columns.
var plain = table.Style{
	Name:    "plain",
	Box:     table.BoxStyle{PaddingRight: "  "},
	Format:  table.FormatOptions{Header: text.FormatUpper},
	Options: table.OptionsNoBordersAndSeparators,
}

const (
	ellipsis     = "…"
	columnsApart = 2
	leastWidth   = 8 // what a column that gives way keeps
)

// elastic are the columns that give way where a table is wider than the
// terminal: names and texts, which --wide and --json have in full. Numbers,
// states and times stay, since half of one is wrong.
var elastic = []string{"tenant", "topic", "group", "key", "id", "name", "owner", "head", "state", "last error"}

// renderTable writes rows of cells that are printable already, aligned by the width
// they have on the screen, numbers to the right, and cut to a width unless that is
// 0. There is at least one row.
func renderTable(w io.Writer, width int, header table.Row, rows []table.Row) error {
	t := table.NewWriter()
	t.SetStyle(plain)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	t.AppendRows(cut(width, header, rows))
	var columns []table.ColumnConfig
	for i, cell := range rows[0] {
		switch cell.(type) {
		case count, int, uint64:
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(columns)
	for line := range strings.SplitSeq(t.Render(), "\n") {
		// Where the columns that do not give way are too wide alone.
		if _, err := fmt.Fprintln(w, text.Snip(line, width, ellipsis)); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens the cells of elastic columns until the rows fit: of the widest
// column first, so that short names stay whole.
func cut(width int, header table.Row, rows []table.Row) []table.Row {
	if width == 0 {
		return rows
	}
	widths := make([]int, len(header))
	total := -columnsApart
	for i, title := range header {
		widths[i] = text.StringWidthWithoutEscSequences(fmt.Sprint(title))
		for _, row := range rows {
			widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(fmt.Sprint(row[i])))
		}
		total += widths[i] + columnsApart
	}
	limits := make(map[int]int)
	for ; total > width; total-- {
		widest := -1
		for i, title := range header {
			name := fmt.Sprint(title)
			if slices.Contains(elastic, name) && widths[i] > max(leastWidth, len(name)) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		limits[widest] = widths[widest]
	}
	short := make([]table.Row, len(rows))
	for i, row := range rows {
		short[i] = slices.Clone(row)
		for column, limit := range limits {
			short[i][column] = text.Snip(fmt.Sprint(row[column]), limit, ellipsis)
		}
	}
	return short
}

// width is that of the terminal that standard output is, in characters: COLUMNS,
// or what the terminal says. It is 0, for no bound, where neither is known, for
// what is no terminal, and with --wide.
func (a *app) width() int {
	if a.wide || !a.outTerminal {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if out, ok := a.out.(*os.File); ok {
		if n, _, err := term.GetSize(int(out.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// mark is a cell for what is true of few rows.
func mark(is bool, word string) string {
	if is {
		return word
	}
	return "-"
}
