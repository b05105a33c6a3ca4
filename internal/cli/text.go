package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/excerpt"
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
	s, err := f.color.page(c.out)
	if err != nil {
		return err
	}
	for _, r := range reports {
		if r.failure != nil {
			fmt.Fprintf(c.err, "fsm-proxy: %v\n", r.failure)
			continue
		}
		if _, err := io.WriteString(s.Out, s.report(r)); err != nil {
			return err
		}
	}
	return nil
}

// report is all findings about a file, and a line on the whole.
func (s page) report(r checked) string {
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

var levelStyles = [...]screen.Style{policy.LevelError: screen.Red, policy.LevelWarning: screen.Yellow, policy.LevelNote: screen.Cyan}

// finding is one finding on one line.
func (s page) finding(f policy.Finding) string {
	return s.Paint(screen.Bold, f.Place()+":") + " " + s.Paint(levelStyles[f.Level], f.Level.String()+":") + " " +
		f.Message + " " + s.Paint(screen.Faint, "("+f.Code+")") + "\n"
}

// summary is one line on a whole file.
func (s page) summary(r checked, shown policy.Findings) string {
	file := s.Paint(screen.Bold, strictyaml.Printable(r.file)+":")
	errors, warnings := len(shown.Errors()), len(shown.Warnings())
	switch {
	case errors > 0:
		return fmt.Sprintf("%s %s, %s", file, s.Paint(screen.Red, count(errors, "error")), count(warnings, "warning"))
	case warnings > 0:
		return fmt.Sprintf("%s ok, %s, %s", file, r.holds, s.Paint(screen.Yellow, count(warnings, "warning")))
	}
	return fmt.Sprintf("%s ok, %s", file, r.holds)
}

// writePairsText writes what was found about each pair of policies, and what a
// reload would do.
func (f *checkFlags) writePairsText(c *console, pairs []comparison) error {
	s, err := f.color.page(c.out)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		if i > 0 {
			fmt.Fprintln(s.Out)
		}
		if err := f.writeFilesText(c, p.files()); err != nil {
			return err
		}
		if text := p.text(); text != "" {
			if _, err := fmt.Fprintf(s.Out, "\n%s", text); err != nil {
				return err
			}
		}
		for _, found := range p.findings() {
			if _, err := io.WriteString(s.Out, s.finding(found)); err != nil {
				return err
			}
		}
	}
	return nil
}

// colorFlag says when output has colours.
type colorFlag struct{ screen.Flag }

func (f *colorFlag) register(flags *pflag.FlagSet) {
	f.Register(flags, " (and source excerpts, as on a terminal)")
}

// page is where people read findings.
type page struct {
	screen.Screen
	excerpts bool // the source is shown below each finding
}

// page is what out is by the flag.
func (f colorFlag) page(out io.Writer) (page, error) {
	s, err := f.Screen(out)
	return page{s, s.Terminal || s.Always}, err
}

// minShown is how many columns of a source line are shown on the narrowest terminal.
const minShown = 20

// excerpt is the source line of a finding with carets below its place, "" where
// there is none to show.
func (s page) excerpt(src []byte, f policy.Finding, look screen.Style) string {
	line, ok := excerpt.Line(src, f.Line)
	if !ok {
		return ""
	}
	number := fmt.Sprintf("%5d", f.Line)
	bar := s.Paint(screen.Faint, " | ")
	shown, before, carets := excerpt.Around(line, f.Column, max(minShown, s.Width-len(number)-len(" | ")-1))
	return fmt.Sprintf("%s%s%s\n%s%s%s%s\n", s.Paint(screen.Faint, number), bar, shown,
		strings.Repeat(" ", len(number)), bar, strings.Repeat(" ", before), s.Paint(look, strings.Repeat("^", carets)))
}
