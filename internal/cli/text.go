package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-colorable"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"golang.org/x/text/width"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// condensed are the findings as people read them, a line each. The notes on implicit
// stays are one: there is one for nearly every binding, and they are to be looked
// up, by --format json, not to be read. What no state binds is one for each kind: a
// policy often leaves out most of what a server has.
func (r checked) condensed() policy.Findings {
	var out policy.Findings
	stays := 0
	for _, found := range report.Grouped(r.findings) {
		switch {
		case found.Code == "unbound":
		case found.Code == "implicit-stay" && found.Level == policy.LevelNote:
			stays++
		default:
			out = append(out, found)
		}
	}
	notes := strictyaml.NewReader(r.file, strictyaml.Language{})
	for _, kind := range policy.AllKinds {
		if names := r.unbound[kind]; len(names) > 0 {
			notes.Add(policy.LevelNote, strictyaml.Place{}, "unbound", "no state binds %d of the upstream's %s: %s", len(names), kind.Plural(), strictyaml.And(names))
		}
	}
	if stays > 0 {
		notes.Add(policy.LevelNote, strictyaml.Place{}, "implicit-stay", "%s: nothing is said of some outcome, so the state stays; --format json has each", count(stays, "implicit stay"))
	}
	return append(out, notes.Findings()...)
}

// writeFilesText writes what was found about each file, and a summary. What could
// not be read is an error on standard error.
func (f *checkFlags) writeFilesText(c *console, reports []checked) error {
	s, err := f.color.screen(c.out)
	if err != nil {
		return err
	}
	for _, r := range reports {
		if r.failure != nil {
			fmt.Fprintf(c.err, "fsm-proxy: %v\n", r.failure)
			continue
		}
		if _, err := io.WriteString(s.out, s.report(r)); err != nil {
			return err
		}
	}
	return nil
}

// report is all findings about a file, and a line on the whole.
func (s screen) report(r checked) string {
	var b strings.Builder
	shown := r.condensed()
	for _, found := range shown {
		b.WriteString(s.finding(found))
		if s.excerpts && found.Line > 0 {
			b.WriteString(s.excerpt(r.sources[found.File], found, levelStyles[found.Level]))
		}
	}
	return b.String() + s.summary(r, shown) + "\n"
}

var levelStyles = [...]style{policy.LevelError: red, policy.LevelWarning: yellow, policy.LevelNote: cyan}

// finding is one finding on one line.
func (s screen) finding(f policy.Finding) string {
	return s.paint(bold, f.Place()+":") + " " + s.paint(levelStyles[f.Level], f.Level.String()+":") + " " +
		f.Message + " " + s.paint(faint, "("+f.Code+")") + "\n"
}

// summary is one line on a whole file.
func (s screen) summary(r checked, shown policy.Findings) string {
	file := s.paint(bold, strictyaml.Printable(r.file)+":")
	errors, warnings := len(shown.Errors()), len(shown.Warnings())
	switch {
	case errors > 0:
		return fmt.Sprintf("%s %s, %s", file, s.paint(red, count(errors, "error")), count(warnings, "warning"))
	case warnings > 0:
		return fmt.Sprintf("%s ok, %s, %s", file, r.holds, s.paint(yellow, count(warnings, "warning")))
	}
	return fmt.Sprintf("%s ok, %s", file, r.holds)
}

// writePairsText writes what was found about each pair of policies, and what a
// reload would do.
func (f *checkFlags) writePairsText(c *console, pairs []comparison) error {
	s, err := f.color.screen(c.out)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := f.writeFilesText(c, p.files()); err != nil {
			return err
		}
		if text := p.text(); text != "" {
			if _, err := fmt.Fprintf(s.out, "\n%s", text); err != nil {
				return err
			}
		}
		for _, found := range p.findings() {
			if _, err := io.WriteString(s.out, s.finding(found)); err != nil {
				return err
			}
		}
	}
	return nil
}

// colorFlag says when output has colours.
type colorFlag struct{ when string }

func (f *colorFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.when, "color", "auto", "`WHEN` to print colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always (and source excerpts, as on a terminal) or never")
}

// screen is where people read findings.
type screen struct {
	out      io.Writer
	excerpts bool // the source is shown below each finding
	colors   bool
	width    int // in columns
}

// usualWidth is the width of what is no terminal.
const usualWidth = 100

// screen is what out is by the flag.
func (f colorFlag) screen(out io.Writer) (screen, error) {
	terminal := host.IsTerminal(out)
	s := screen{out: out, excerpts: terminal, width: usualWidth}
	switch f.when {
	case "auto":
		s.colors = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case "always":
		s.colors, s.excerpts = true, true
	case "never":
	default:
		return s, exit.Usagef("--color %q is none of auto, always, never", f.when)
	}
	if terminal {
		file := out.(*os.File)
		s.width = columns(file)
		if s.colors {
			s.out = colorable.NewColorable(file) // consoles of Windows that know no escape sequences
		}
	}
	return s, nil
}

// columns is how wide a terminal is, usualWidth where it does not say.
func columns(terminal *os.File) int {
	if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
		return width
	}
	return usualWidth
}

// style is how a piece of text looks, as the parameters of an SGR sequence.
type style string

// The styles of findings.
const (
	bold   style = "1"
	faint  style = "2"
	red    style = "1;31"
	yellow style = "1;33"
	cyan   style = "1;36"
)

// paint is a text in a style, where there are colours.
func (s screen) paint(look style, text string) string {
	if !s.colors || text == "" {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}

// minShown is how many columns of a source line are shown on the narrowest terminal.
const minShown = 20

// excerpt is the source line of a finding with carets below its place, "" where
// there is none to show.
func (s screen) excerpt(src []byte, f policy.Finding, look style) string {
	line, ok := sourceLine(src, f.Line)
	if !ok {
		return ""
	}
	number := fmt.Sprintf("%5d", f.Line)
	bar := s.paint(faint, " | ")
	shown, before, carets := clipAround(line, f.Column, max(minShown, s.width-len(number)-len(" | ")-1))
	return fmt.Sprintf("%s%s%s\n%s%s%s%s\n", s.paint(faint, number), bar, shown,
		strings.Repeat(" ", len(number)), bar, strings.Repeat(" ", before), s.paint(look, strings.Repeat("^", carets)))
}

// sourceLine is one line of a file, counted from 1.
func sourceLine(src []byte, number int) (string, bool) {
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

// clipAround clips a line to at most so many columns around the word at column, which
// counts characters from 1. It returns how many columns are shown before the word, and
// how many carets go under it.
func clipAround(line string, column, columns int) (shown string, before, under int) {
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
