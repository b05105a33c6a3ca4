package policy

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// The signs of the text rendering.
const (
	signEntry    = "▶" // before the initial state
	signTerminal = "■" // completes the run
	signStay     = "↻" // stays
	signTo       = "→"
	signNone     = "✕" // does not exist
)

// Text renders the policy for a terminal: every state with what is bound there
// and where each outcome leads; the entry, terminals and self-loops are marked.
func (p *Policy) Text() string {
	all := make([]State, len(p.states))
	for s := range all {
		all[s] = State(s)
	}
	return p.TextOf(all...)
}

// TextOf is Text with some of the states only, and with what is bound everywhere
// if one of them takes it.
func (p *Policy) TextOf(states ...State) string {
	var out strings.Builder
	p.textHead(&out)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	takes := len(states) == len(p.states)
	for _, s := range states {
		p.textState(w, s)
		takes = takes || p.states[s].inherits && !p.states[s].Terminal
	}
	if takes {
		p.textEverywhere(w)
	}
	w.Flush()
	fmt.Fprintf(&out, "\n%s entry   %s stays   %s completes the run\n", signEntry, signStay, signTerminal)
	return trimLines(out.String())
}

func (p *Policy) textHead(out *strings.Builder) {
	name := p.name
	if name == "" {
		name = p.file
	}
	fmt.Fprintf(out, "%s: %s, begins in %s", strictyaml.Printable(name), count(len(p.states), "state"), strictyaml.Printable(p.StateName(p.initial)))
	if p.hasTerminal() {
		fmt.Fprintf(out, ", on completion: %s", p.onComplete)
		if !p.completionSaid {
			out.WriteString(" (default)")
		}
	}
	out.WriteString("\n")
	if p.description != "" {
		fmt.Fprintf(out, "%s\n", strictyaml.Printable(strings.TrimSpace(p.description)))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// hasTerminal reports whether some edge completes a run.
func (p *Policy) hasTerminal() bool {
	found := false
	for s := range p.states {
		p.effective(State(s), func(b *binding) { found = found || b.completes() })
	}
	return found
}

func (p *Policy) textState(w *tabwriter.Writer, s State) {
	st := &p.states[s]
	mark := " "
	switch {
	case s == p.initial:
		mark = signEntry
	case st.Terminal:
		mark = signTerminal
	}
	fmt.Fprintf(w, "\n%s %s", mark, strictyaml.Printable(st.Name))
	if !st.inherits && !st.Terminal && p.bindsEverywhere() {
		fmt.Fprint(w, " (takes nothing of everywhere)")
	}
	if st.Description != "" {
		fmt.Fprintf(w, ": %s", strictyaml.Printable(strings.TrimSpace(st.Description)))
	}
	fmt.Fprintln(w)
	rows := 0
	for k := range Kinds {
		rows += p.textLayer(w, &st.own[k], s)
	}
	if rows == 0 && !st.Terminal {
		fmt.Fprintln(w, "      binds nothing of its own")
	}
}

func (p *Policy) bindsEverywhere() bool {
	for k := range Kinds {
		if len(p.everywhere[k].order) > 0 {
			return true
		}
	}
	return false
}

func (p *Policy) textEverywhere(w *tabwriter.Writer) {
	if !p.bindsEverywhere() {
		return
	}
	fmt.Fprintln(w, "\n* everywhere, in each state that is not terminal")
	for k := range Kinds {
		p.textLayer(w, &p.everywhere[k], here)
	}
}

// textLayer writes a row for each way that a binding leads, and returns their
// number.
func (p *Policy) textLayer(w *tabwriter.Writer, l *layer, s State) int {
	rows := 0
	for i, b := range l.order {
		kind := ""
		if i == 0 {
			kind = b.kind.String()
		}
		for _, row := range p.textRows(b, s) {
			fmt.Fprintf(w, "    %s\t%s\t%s\n", kind, row.name, row.leads)
			kind = ""
			rows++
		}
	}
	return rows
}

type textRow struct{ name, leads string }

func (p *Policy) textRows(b *binding, s State) []textRow {
	name := strictyaml.Printable(b.rule.Pattern)
	if b.none {
		return []textRow{{name, signNone + " none"}}
	}
	var rows []textRow
	b.each(func(text string, e *edges) {
		label := name
		if b.by != "" {
			label = fmt.Sprintf("%s [%s=%s]", name, strictyaml.Printable(b.by), strictyaml.Printable(text))
		}
		for _, way := range p.ways(e, s) {
			rows = append(rows, textRow{label, way.text(p, s, e.exclusive)})
			label = ""
		}
	})
	return rows
}

// way is a target with the outcomes that lead there.
type way struct {
	target
	outcomes []Outcome
}

// ways groups the outcomes of a symbol by where they lead from s.
func (p *Policy) ways(e *edges, s State) []way {
	var out []way
	for i, o := range allOutcomes {
		t := target{e.to[i].in(s), e.to[i].terminal}
		if n := len(out); n > 0 && out[n-1].target == t {
			out[n-1].outcomes = append(out[n-1].outcomes, o)
			continue
		}
		out = append(out, way{t, []Outcome{o}})
	}
	return out
}

// when names the outcomes, "" if they are all.
func (w way) when() string { return when(w.outcomes) }

func when(some []Outcome) string {
	if len(some) == outcomes {
		return ""
	}
	names := make([]string, len(some))
	for i, o := range some {
		names[i] = o.String()
	}
	return strings.Join(names, ", ")
}

func (w way) text(p *Policy, s State, exclusive bool) string {
	leads := p.leads(w.target, s, exclusive).String()
	if when := w.when(); when != "" {
		return when + " " + leads
	}
	return leads
}

// Lead is where an outcome leads. The zero value is no edge at all.
type Lead struct {
	To        string `json:"to"`                  // the name of the state
	Stays     bool   `json:"stays,omitempty"`     // To is the state itself
	Terminal  bool   `json:"terminal,omitempty"`  // the run completes there
	Exclusive bool   `json:"exclusive,omitempty"` // the call takes the run's turn in any case
}

// leads says where a target leads from s.
func (p *Policy) leads(t target, s State, exclusive bool) Lead {
	return Lead{To: p.StateName(t.in(s)), Stays: t.in(s) == s, Terminal: t.terminal, Exclusive: exclusive}
}

// String returns the lead as render draws it, on one line that cannot disturb a
// terminal.
func (l Lead) String() string {
	text := signTo + " " + strictyaml.Printable(l.To)
	switch {
	case l == Lead{}:
		return signNone + " refused"
	case l.Terminal && l.Stays:
		text = signTerminal + " completes here"
	case l.Terminal:
		text += " " + signTerminal + " completes"
	case l.Stays:
		text = signStay + " stays"
	}
	if l.Exclusive {
		text += " (exclusive)"
	}
	return text
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
