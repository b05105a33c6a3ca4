package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// table is a Markdown table whose columns are padded, so that it reads in a
// terminal as well.
type table struct {
	columns []column
	rows    [][]string
}

type column struct {
	title string
	right bool // figures stand to the right
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table; a row must have a cell for every column.
func (t *table) write(w io.Writer) error {
	widths := make([]int, len(t.columns))
	titles, rule := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i], widths[i] = c.title, max(3, utf8.RuneCountInString(c.title))
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		rule[i] = strings.Repeat("-", widths[i])
		if c.right {
			rule[i] = rule[i][1:] + ":"
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{titles, rule}, t.rows...) {
		for i, cell := range row {
			b.WriteString("| " + t.columns[i].pad(cell, widths[i]) + " ")
		}
		b.WriteString("|\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c column) pad(cell string, width int) string {
	space := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	if c.right {
		return space + cell
	}
	return cell + space
}

// number prints three digits at least: 0.413, 61.2, 14,210. NaN is "–".
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v), math.IsInf(v, 0):
		return "–"
	case abs < 10:
		return fmt.Sprintf("%.2f", v)
	case abs < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(int64(math.Round(v)))
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
