// Package excerpt cuts lines to the columns of a terminal.
package excerpt

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Line is one line of a file, counted from 1.
func Line(src []byte, number int) (string, bool) {
	for ; number > 1; number-- {
		end := bytes.IndexByte(src, '\n')
		if end < 0 {
			return "", false
		}
		src = src[end+1:]
	}
	line, _, _ := bytes.Cut(src, []byte("\n"))
	return strings.TrimPrefix(strings.TrimSuffix(string(line), "\r"), "\uFEFF"), number == 1 && src != nil
}

// cell is what one character of a line becomes on a terminal.
type cell struct {
	text  string
	width int
}

const (
	tabWidth    = 4
	replacement = "\uFFFD" // for what does not print, or changes the direction of what follows
	ellipsis    = "…"
)

func cellOf(r rune) cell {
	switch {
	case r == '\t':
		return cell{strings.Repeat(" ", tabWidth), tabWidth}
	case unicode.In(r, unicode.Mn, unicode.Me):
		return cell{string(r), 0}
	case !unicode.IsPrint(r):
		return cell{replacement, 1}
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return cell{string(r), 2}
	}
	return cell{string(r), 1}
}

// Around clips a line to at most so many columns around the word at column, which
// counts characters from 1. It returns how many columns are shown before the word, and
// how many carets go under it.
func Around(line string, column, columns int) (shown string, before, under int) {
	column = min(max(column, 1), utf8.RuneCountInString(line)+1)
	cells := make([]cell, 0, len(line))
	for _, r := range line {
		cells = append(cells, cellOf(r))
	}
	first := column - 1
	last := first + wordLength([]rune(line)[first:])
	from, to := window(cells, first, last, columns)
	if from > 0 {
		shown, before = ellipsis, 1
	}
	for i := from; i < to; i++ {
		shown += cells[i].text
		switch {
		case i < first:
			before += cells[i].width
		case i < last:
			under += cells[i].width
		}
	}
	if to < len(cells) {
		shown += ellipsis
	}
	return shown, before, max(under, 1)
}

// window is the part of a line to show: all of it where that fits, else its beginning
// where the cells from first to last are within that, else what fits around them.
func window(cells []cell, first, last, columns int) (from, to int) {
	if widthOf(cells) <= columns {
		return 0, len(cells)
	}
	left := columns - 1 // what is cut off behind
	if used := widthOf(cells[:last]); used <= left {
		first, last = 0, 0
	} else {
		left-- // and before
	}
	from, to = first, first
	for to < last && cells[to].width <= left {
		left -= cells[to].width
		to++
	}
	behind := left
	if from > 0 {
		behind = left / 2
	}
	for to >= last && to < len(cells) && cells[to].width <= behind {
		behind -= cells[to].width
		left -= cells[to].width
		to++
	}
	for from > 0 && cells[from-1].width <= left {
		from--
		left -= cells[from].width
	}
	return from, to
}

func widthOf(cells []cell) (total int) {
	for _, c := range cells {
		total += c.width
	}
	return total
}

// wordLength is how many characters the YAML word at the beginning of a text has:
// a quoted text, or a plain one.
func wordLength(text []rune) int {
	if len(text) == 0 {
		return 0
	}
	if quote := text[0]; quote == '"' || quote == '\'' {
		return quotedLength(text, quote)
	}
	for i, r := range text {
		next := ' '
		if i+1 < len(text) {
			next = text[i+1]
		}
		switch {
		case strings.ContainsRune(",[]{}", r), r == ':' && unicode.IsSpace(next), unicode.IsSpace(r) && next == '#':
			return max(i, 1)
		}
	}
	return max(len([]rune(strings.TrimRightFunc(string(text), unicode.IsSpace))), 1)
}

func quotedLength(text []rune, quote rune) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

// Fit is as much of a text as so many columns hold, and how many it takes.
func Fit(text string, columns int) (shown string, width int) {
	var cells []cell
	for _, r := range text {
		cells = append(cells, cellOf(r))
		width += cells[len(cells)-1].width
	}
	var b strings.Builder
	ends := ""
	if width > columns {
		columns, ends = columns-1, ellipsis
	}
	width = len([]rune(ends))
	for _, c := range cells {
		if columns -= c.width; columns < 0 {
			break
		}
		b.WriteString(c.text)
		width += c.width
	}
	return b.String() + ends, width
}
