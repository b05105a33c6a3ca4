package explain

import (
	"strings"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Look is how a piece of text is shown.
type Look uint8

// The looks.
const (
	Plain Look = iota
	Good       // the call goes
	Bad        // what stands in its way
	Quiet      // where it stands
)

// widest is how wide the column of texts gets for the sake of a long one.
const widest = 72

// Text writes the explanation for people: the verdict, and a line for each step, with its place. paint gives texts
// their looks.
func (x *Explanation) Text(paint func(Look, string) string) string {
	var lines []line
	for _, s := range x.Steps {
		lines = s.lines(lines, 1)
	}
	lines = append(lines, line{text: "  lists: " + x.shown()})
	width := 0
	for _, l := range lines {
		if n := utf8.RuneCountInString(l.text + l.is); l.rule != "" && n <= widest {
			width = max(width, n)
		}
	}
	var out strings.Builder
	out.WriteString(x.head(paint) + "\n")
	for _, l := range lines {
		out.WriteString(l.text + paint(l.look, l.is))
		if l.rule != "" {
			gap := width - utf8.RuneCountInString(l.text+l.is)
			out.WriteString(strings.Repeat(" ", max(gap, 0)+2) + paint(Quiet, l.rule))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// head is the verdict on one line.
func (x *Explanation) head(paint func(Look, string) string) string {
	call := strictyaml.Printable(x.Kind + " " + x.Name + " in " + x.State + ": ")
	turn := ""
	if x.Turn {
		turn = " with the run's turn"
	}
	switch x.Verdict {
	case Refused:
		return call + paint(Bad, "refused, "+x.Code) + ": " + x.Why
	case Invalid:
		return call + paint(Bad, "no call can be this") + ": " + x.Why
	case Held:
		return call + paint(Bad, "held for an approval") + ", then sent" + turn
	}
	return call + paint(Good, string(x.Verdict)) + turn
}

// shown says whether lists have the name.
func (x *Explanation) shown() string {
	if x.Listed {
		return "shown"
	}
	return "not shown"
}

// line is a step as it is printed.
type line struct {
	text, is, rule string
	look           Look
}

// lines appends a step's line, and those of the steps in it.
func (s *Step) lines(to []line, depth int) []line {
	l := line{text: strings.Repeat("  ", depth) + strictyaml.Printable(strings.TrimSpace(s.What+" "+s.Text)), rule: strictyaml.Printable(s.Rule)}
	if s.Is != "" {
		l.text, l.is = l.text+": ", strictyaml.Printable(s.Is)
	}
	switch word, _, _ := strings.Cut(strings.ReplaceAll(s.Is, ":", ","), ","); {
	case s.What == "when" || s.What == "and" || s.What == "for":
		switch word {
		case "true", "yes":
			l.look = Good
		case "false", "error", "no":
			l.look = Bad
		}
	case s.What == "alternative" && s.Is == looks[2][0]:
		l.look = Good
	}
	to = append(to, l)
	for i := range s.Steps {
		to = s.Steps[i].lines(to, depth+1)
	}
	return to
}
