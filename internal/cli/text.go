package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-colorable"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/fsm-proxy/fsm-proxy/internal/excerpt"
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
	green  style = "1;32"
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
	line, ok := excerpt.Line(src, f.Line)
	if !ok {
		return ""
	}
	number := fmt.Sprintf("%5d", f.Line)
	bar := s.paint(faint, " | ")
	shown, before, carets := excerpt.Around(line, f.Column, max(minShown, s.width-len(number)-len(" | ")-1))
	return fmt.Sprintf("%s%s%s\n%s%s%s%s\n", s.paint(faint, number), bar, shown,
		strings.Repeat(" ", len(number)), bar, strings.Repeat(" ", before), s.paint(look, strings.Repeat("^", carets)))
}
