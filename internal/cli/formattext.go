package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// condensed are the findings as people read them, a line each. The notes on implicit
// stays are one: there is one for nearly every binding, and they are to be looked
// up, by --format json, not to be read. What no state binds is one for each kind: a
// policy often leaves out most of what a server has.
func (r checked) condensed() policy.Findings {
	var out policy.Findings
	stays := 0
	for _, found := range policy.Grouped(r.findings) {
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
