package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// The signs of the text rendering.
const (
	signEntry    = "▶" // before the initial state
	signTerminal = "■" // completes the run
	signStay     = "↻" // stays
	signTo       = "→"
	signNone     = "✕" // does not exist
	signReturn   = "↩" // returns
)

// Text renders a policy for a terminal: every state with what is bound there
// and where each outcome leads; the entry, terminals and self-loops are marked.
func Text(p *policy.Policy) string {
	all := make([]policy.State, len(p.States()))
	for s := range all {
		all[s] = policy.State(s)
	}
	return TextOf(p, all...)
}

// TextOf is Text with some of the states only, and with what is bound everywhere
// if one of them takes it.
func TextOf(p *policy.Policy, states ...policy.State) string {
	var out strings.Builder
	textHead(&out, p)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	takes := len(states) == len(p.States())
	for _, s := range states {
		textState(w, p, s)
		takes = takes || p.State(s).Inherits
	}
	if takes && bindsEverywhere(p) {
		fmt.Fprintln(w, "\n* everywhere, in each state that is not terminal")
		textBindings(w, p, policy.Everywhere)
	}
	w.Flush()
	fmt.Fprintf(&out, "\n%s entry   %s stays   %s completes the run\n", signEntry, signStay, signTerminal)
	return trimLines(out.String())
}

func textHead(out *strings.Builder, p *policy.Policy) {
	name := p.Name()
	if name == "" {
		name = p.File()
	}
	fmt.Fprintf(out, "%s: %s, begins in %s", strictyaml.Printable(name), count(len(p.States()), "state"), strictyaml.Printable(p.StateName(p.Initial().State)))
	if hasTerminal(p) {
		fmt.Fprintf(out, ", on completion: %s", p.OnComplete())
		if !p.SaysOnComplete() {
			out.WriteString(" (default)")
		}
	}
	out.WriteString("\n")
	if p.Description() != "" {
		fmt.Fprintf(out, "%s\n", strictyaml.Printable(strings.TrimSpace(p.Description())))
	}
	for _, x := range settingTerms(p) {
		fmt.Fprintf(out, "    %s\n", cut(strings.TrimSpace(x.What+" "+x.Of)+" "+x.Text, maxTerm))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// hasTerminal reports whether some edge, where it has a say, completes a run.
func hasTerminal(p *policy.Policy) bool {
	for s := range p.States() {
		for b := range p.Effective(policy.State(s)) {
			if completes(b) {
				return true
			}
		}
	}
	return false
}

func textState(w *tabwriter.Writer, p *policy.Policy, s policy.State) {
	st := p.State(s)
	mark := " "
	switch {
	case s == p.Initial().State:
		mark = signEntry
	case st.Terminal:
		mark = signTerminal
	}
	fmt.Fprintf(w, "\n%s %s", mark, strictyaml.Printable(st.Name))
	if !st.Inherits && !st.Terminal && bindsEverywhere(p) {
		fmt.Fprint(w, " (takes nothing of everywhere)")
	}
	if st.Description != "" {
		fmt.Fprintf(w, ": %s", strictyaml.Printable(strings.TrimSpace(st.Description)))
	}
	fmt.Fprintln(w)
	terms := stateTerms(p, s, same)
	if p.UpstreamMayIn(s, p) != p.UpstreamMay() {
		terms = append(terms, askingTerm(p, s))
	}
	for _, x := range terms {
		fmt.Fprintf(w, "    %s %s\n", x.What, strictyaml.Printable(x.Text))
	}
	if rows := textBindings(w, p, s); rows == 0 && !st.Terminal && p.After(s) == nil {
		fmt.Fprintln(w, "      binds nothing of its own")
	}
}

func bindsEverywhere(p *policy.Policy) bool {
	return slices.ContainsFunc(policy.SymbolKinds[:], func(k policy.Kind) bool { return len(p.BindingsIn(policy.Everywhere, k)) > 0 })
}

// textBindings writes a row for each way that what a state, or everywhere, binds itself
// leads, and returns their number.
func textBindings(w *tabwriter.Writer, p *policy.Policy, home policy.State) int {
	rows := 0
	for _, k := range policy.SymbolKinds {
		kind := k.String()
		for _, b := range p.BindingsIn(home, k) {
			for _, row := range textRows(p, b, home) {
				fmt.Fprintf(w, "    %s\t%s\t%s\n", kind, row.name, row.leads)
				kind = ""
				rows++
			}
		}
	}
	return rows
}

type textRow struct{ name, leads string }

func textRows(p *policy.Policy, b *policy.Binding, s policy.State) []textRow {
	name := strictyaml.Printable(b.Pattern)
	if b.None {
		return []textRow{{name, signNone + " none"}}
	}
	var rows []textRow
	for i := range b.Cases {
		c := &b.Cases[i]
		label := name
		if b.From == policy.Operator {
			label += " [operator]"
		}
		if b.By != "" {
			label = fmt.Sprintf("%s [%s=%s]", name, strictyaml.Printable(b.By), strictyaml.Printable(c.Name))
		}
		if c.None {
			rows = append(rows, textRow{label, signNone + " none"})
			continue
		}
		for j := range c.Alternatives {
			a := &c.Alternatives[j]
			for _, x := range terms(a, nil) {
				if x.What != "set" && (x.What != "outcomes" || x.Of != "") { // else it is their order
					rows = append(rows, textRow{label, cut(strings.TrimSpace(x.What+" "+x.Of)+" "+x.Text, maxTerm)})
					label = ""
				}
			}
			for _, way := range ways(a, s) {
				leads := leadOf(p, a, s, way.outcomes[0]).String()
				rows = append(rows, textRow{label, strings.TrimSpace(when(a, way.outcomes) + " " + leads)})
				label = ""
				for _, set := range setsOf(a, way) {
					rows = append(rows, textRow{"", "  " + cut(set, maxTerm)})
				}
			}
			label = "or"
		}
	}
	return rows
}

// maxTerm is how long what holds for calls may be in a line for people.
const maxTerm = 160

// setsOf says what the outcomes of a way set.
func setsOf(a *policy.Alternative, w way) (out []string) {
	var texts, names []string // by what is set, the outcomes with it
	for _, o := range w.outcomes {
		text := strings.Join(setTexts(a.Sets(o)), ", ")
		switch n := len(texts); {
		case n > 0 && texts[n-1] == text:
			names[n-1] += ", " + a.OutcomeName(o)
		default:
			texts, names = append(texts, text), append(names, a.OutcomeName(o))
		}
	}
	for i, text := range texts {
		switch {
		case text == "":
		case len(texts) == 1:
			out = append(out, "set "+text)
		default:
			out = append(out, names[i]+": set "+text)
		}
	}
	return out
}

// way is a target with the outcomes that lead there.
type way struct {
	policy.Target
	outcomes []policy.Outcome
}

// ways groups the outcomes of an alternative by where they lead from s.
func ways(a *policy.Alternative, s policy.State) []way {
	var out []way
	for _, o := range a.AllOutcomes() {
		t := a.Leads(o)
		t.State = t.In(s)
		if n := len(out); n > 0 && out[n-1].Target == t {
			out[n-1].outcomes = append(out[n-1].outcomes, o)
			continue
		}
		out = append(out, way{t, []policy.Outcome{o}})
	}
	return out
}

// when names outcomes of an alternative, "" if they are all.
func when(a *policy.Alternative, some []policy.Outcome) string {
	if len(some) == len(policy.AllOutcomes)+len(a.Outcomes) {
		return ""
	}
	names := make([]string, len(some))
	for i, o := range some {
		names[i] = a.OutcomeName(o)
	}
	return strings.Join(names, ", ")
}

// whenever names outcomes, "" if they are those of every call.
func whenever(names []string) string {
	if len(names) == len(policy.AllOutcomes) {
		return ""
	}
	return strings.Join(names, ", ")
}

// Lead is where an outcome leads. The zero value is no edge at all.
type Lead struct {
	To           string `json:"to"`                     // the name of the state
	Stays        bool   `json:"stays,omitempty"`        // To is the state itself
	Returns      string `json:"returns,omitempty"`      // in place of To: to where this state, or part, was entered from
	Terminal     bool   `json:"terminal,omitempty"`     // the run completes there
	Exclusive    bool   `json:"exclusive,omitempty"`    // the call takes the run's turn in any case
	Irreversible bool   `json:"irreversible,omitempty"` // no fork of a run goes back behind the call
	Timeout      string `json:"timeout,omitempty"`      // how long the answer may take, where the policy says that
	As           string `json:"as,omitempty"`           // in place of To: there is no such outcome, and such a call has one of these
}

// leadOf says where an outcome of an alternative leads from s.
func leadOf(p *policy.Policy, a *policy.Alternative, s policy.State, o policy.Outcome) Lead {
	t := a.Leads(o)
	lead := Lead{Exclusive: a.Exclusive, Irreversible: a.Irreversible}
	if a.Timeout > 0 {
		lead.Timeout = strictyaml.DurationText(a.Timeout)
	}
	if t.State == policy.Origin {
		lead.Returns = cmp.Or(p.Returns(t, s), "the state")
		return lead
	}
	lead.To, lead.Stays, lead.Terminal = p.StateName(t.In(s)), t.In(s) == s, t.Terminal
	return lead
}

// String returns the lead as render draws it, on one line that cannot disturb a
// terminal.
func (l Lead) String() string {
	text := signTo + " " + strictyaml.Printable(l.To)
	switch {
	case l == Lead{}:
		return signNone + " refused"
	case l.As != "":
		text = "as " + l.As
	case l.Returns != "":
		text = signReturn + " returns from " + strictyaml.Printable(l.Returns)
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
	if l.Irreversible {
		text += " (irreversible)"
	}
	if l.Timeout != "" {
		text += " (timeout " + l.Timeout + ")"
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

// The JSON rendering: the compiled table, each state with everything that has a
// say in it.
type policyJSON struct {
	Name         string      `json:"name,omitempty"`
	Description  string      `json:"description,omitempty"`
	Instructions string      `json:"instructions,omitempty"`
	File         string      `json:"file"`
	Digest       string      `json:"digest"`
	Initial      string      `json:"initial"`
	OnComplete   string      `json:"on_complete"`
	Terms        []Term      `json:"terms,omitempty"` // registers, and what a run may do at most
	States       []stateJSON `json:"states"`
}

type stateJSON struct {
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Initial     bool          `json:"initial,omitempty"`
	Terminal    bool          `json:"terminal,omitempty"`
	Part        string        `json:"part,omitempty"`  // that it is a state of
	Terms       []Term        `json:"terms,omitempty"` // for, at_most, after
	Bindings    []bindingJSON `json:"bindings"`
}

type bindingJSON struct {
	Kind       string     `json:"kind"`
	Pattern    string     `json:"pattern"`
	Glob       bool       `json:"glob,omitempty"`
	Everywhere bool       `json:"everywhere,omitempty"`
	Shared     string     `json:"shared,omitempty"` // the part state that binds it in several; with "/" its file's everywhere
	File       string     `json:"file,omitempty"`   // another than the policy's
	Line       int        `json:"line"`
	Column     int        `json:"column"`
	None       bool       `json:"none,omitempty"`
	From       string     `json:"from,omitempty"`        // of a signal
	Says       string     `json:"description,omitempty"` // of a signal
	By         string     `json:"by,omitempty"`
	Terms      []termJSON `json:"terms,omitempty"`
	Edges      []edgeJSON `json:"edges,omitempty"`
}

// termJSON is what holds for a binding's calls.
type termJSON struct {
	Case        *string `json:"case,omitempty"`
	Alternative int     `json:"alternative,omitempty"` // from 1, where there are several
	Term
}

type edgeJSON struct {
	Case         *string `json:"case,omitempty"`
	None         bool    `json:"none,omitempty"`        // the case is refused, and has nothing else
	Alternative  int     `json:"alternative,omitempty"` // from 1, where there are several
	Outcome      string  `json:"outcome,omitempty"`
	To           string  `json:"to,omitempty"`
	Returns      string  `json:"returns,omitempty"` // in place of to: the state, or part, from which it returns
	Stays        bool    `json:"stays,omitempty"`
	Terminal     bool    `json:"terminal,omitempty"`
	Exclusive    bool    `json:"exclusive,omitempty"`
	Irreversible bool    `json:"irreversible,omitempty"`
}

// JSON renders a compiled policy as indented JSON: each state with every
// binding that has a say there, everywhere's included, and where each outcome
// leads.
func JSON(p *policy.Policy) []byte {
	out := policyJSON{
		Name: p.Name(), Description: p.Description(), Instructions: p.Instructions(),
		File: p.File(), Digest: p.Digest(), Initial: p.StateName(p.Initial().State), OnComplete: p.OnComplete().String(),
		Terms: settingTerms(p),
	}
	for s, st := range p.States() {
		s := policy.State(s)
		state := stateJSON{
			Name: st.Name, Description: st.Description, Initial: s == p.Initial().State, Terminal: st.Terminal, Part: st.Part,
			Terms: stateTerms(p, s, same), Bindings: []bindingJSON{},
		}
		for b := range p.Effective(s) {
			state.Bindings = append(state.Bindings, jsonOf(p, b, s))
		}
		out.States = append(out.States, state)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		panic("encoding a plain struct: " + err.Error())
	}
	return text.Bytes()
}

// jsonOf renders a binding as it is in s.
func jsonOf(p *policy.Policy, b *policy.Binding, s policy.State) bindingJSON {
	out := bindingJSON{
		Kind: b.Kind.String(), Pattern: b.Pattern, Glob: b.Glob, Everywhere: b.Home == policy.Everywhere,
		Shared: b.Shared, Line: b.Line, Column: b.Column, None: b.None, By: b.By, Says: b.Says,
	}
	if b.File != p.File() {
		out.File = b.File
	}
	if b.Kind == policy.Signal && !b.None {
		out.From = b.From.String()
	}
	for i := range b.Cases {
		c := &b.Cases[i]
		var selected *string
		if b.By != "" {
			selected = &c.Name
		}
		if c.None {
			out.Edges = append(out.Edges, edgeJSON{Case: selected, None: true})
			continue
		}
		for j := range c.Alternatives {
			a, number := &c.Alternatives[j], 0
			if len(c.Alternatives) > 1 {
				number = j + 1
			}
			for _, x := range terms(a, nil) {
				out.Terms = append(out.Terms, termJSON{selected, number, x})
			}
			outcomes := a.AllOutcomes()
			if b.Kind == policy.Signal { // which has one
				outcomes = outcomes[:1]
			}
			for _, o := range outcomes {
				l := leadOf(p, a, s, o)
				out.Edges = append(out.Edges, edgeJSON{
					Case: selected, Alternative: number, Outcome: a.OutcomeName(o), To: l.To, Returns: l.Returns,
					Stays: !a.Leads(o).Changes(s), Terminal: l.Terminal, Exclusive: l.Exclusive, Irreversible: l.Irreversible,
				})
			}
		}
	}
	return out
}
