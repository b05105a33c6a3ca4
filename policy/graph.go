package policy

import (
	"fmt"
	"strings"
)

// The diagrams are drawn here and not by looplab/fsm's visualizers: those know
// no terminal edges and no outcomes, draw one arrow for each event, sort the
// states by name, and do not escape labels.

// arrow is one arrow of a diagram: all that leads from one state to another, or
// completes the run there.
type arrow struct {
	from   State
	to     State
	done   bool
	labels []string
}

// arrows gathers the arrows of the policy in the order of its states and
// bindings. What everywhere binds is drawn where it leads on; its stays are
// returned apart, since they would be the same in every state.
func (p *Policy) arrows() (all []*arrow, everywhere []string) {
	type key struct {
		from State
		target
	}
	index := map[key]*arrow{}
	add := func(from State, t target, label string) {
		k := key{from, t}
		if index[k] == nil {
			index[k] = &arrow{from: from, to: t.state, done: t.terminal}
			all = append(all, index[k])
		}
		index[k].labels = append(index[k].labels, label)
	}
	for s := range p.states {
		p.effective(State(s), func(b *binding) {
			p.eachWay(b, State(s), func(w way, label string) {
				if b.home != here || w.changes(State(s)) {
					add(State(s), w.target, label)
				}
			})
		})
	}
	return all, p.everywhereStays()
}

// eachWay calls f for each place that a binding leads to from s.
func (p *Policy) eachWay(b *binding, s State, f func(w way, label string)) {
	b.each(func(text string, e *edges) {
		for _, w := range p.ways(e, s) {
			f(w, arrowLabel(b, text, w))
		}
	})
}

func arrowLabel(b *binding, text string, w way) string {
	label := b.rule.Pattern
	if b.kind != Tool {
		label = b.kind.String() + " " + label
	}
	if b.by != "" {
		label += fmt.Sprintf(" [%s=%s]", b.by, text)
	}
	if when := w.when(); when != "" {
		label += " (" + when + ")"
	}
	return label
}

func (p *Policy) everywhereStays() []string {
	var out []string
	for k := range Kinds {
		for _, b := range p.everywhere[k].order {
			p.eachWay(b, here, func(w way, label string) {
				if w.state == here && !w.terminal {
					out = append(out, label)
				}
			})
		}
	}
	return out
}

// Mermaid renders the policy as a Mermaid state diagram.
func (p *Policy) Mermaid() string {
	var out strings.Builder
	out.WriteString("stateDiagram-v2\n")
	for s := range p.states {
		fmt.Fprintf(&out, "    state \"%s\" as s%d\n", mermaidText(p.states[s].Name), s)
	}
	fmt.Fprintf(&out, "    [*] --> s%d\n", p.initial)
	arrows, everywhere := p.arrows()
	for _, a := range arrows {
		p.mermaidArrow(&out, a)
	}
	for s := range p.states {
		if p.states[s].Terminal {
			fmt.Fprintf(&out, "    s%d --> [*]\n", s)
		}
	}
	if len(everywhere) > 0 {
		fmt.Fprintf(&out, "    note right of s%d\n        everywhere: %s\n    end note\n", p.initial, mermaidLabels(everywhere))
	}
	return out.String()
}

// mermaidArrow draws an arrow; a run that completes in a state that is not
// terminal goes to the end sign, and the label says where it was.
func (p *Policy) mermaidArrow(out *strings.Builder, a *arrow) {
	to, label := fmt.Sprintf("s%d", a.to), mermaidLabels(a.labels)
	if a.done && !p.states[a.to].Terminal {
		to = "[*]"
		if a.to != a.from {
			label += "<br/>completes in " + mermaidText(p.states[a.to].Name)
		}
	}
	fmt.Fprintf(out, "    s%d --> %s : %s\n", a.from, to, label)
}

func mermaidLabels(labels []string) string {
	escaped := make([]string, len(labels))
	for i, l := range labels {
		escaped[i] = mermaidText(l)
	}
	return strings.Join(escaped, "<br/>")
}

// mermaidText writes what could be Mermaid's syntax as character entities.
func mermaidText(text string) string {
	var out strings.Builder
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', strings.ContainsRune(" _.,/()=+", c), c >= 0xa0:
			out.WriteRune(c)
		case c == '-' || c == '*':
			out.WriteRune(c)
		default:
			fmt.Fprintf(&out, "#%d;", c)
		}
	}
	return out.String()
}

// DOT renders the policy in Graphviz's language.
func (p *Policy) DOT() string {
	var out strings.Builder
	fmt.Fprintf(&out, "digraph %s {\n", dotText(p.graphName()))
	out.WriteString("    rankdir=LR\n    node [shape=box, style=rounded]\n    entry [shape=point]\n")
	for s := range p.states {
		fmt.Fprintf(&out, "    s%d [label=%s%s]\n", s, dotText(p.states[s].Name), p.dotShape(State(s)))
	}
	fmt.Fprintf(&out, "    entry -> s%d\n", p.initial)
	arrows, everywhere := p.arrows()
	for _, a := range arrows {
		p.dotArrow(&out, a)
	}
	if len(everywhere) > 0 {
		fmt.Fprintf(&out, "    everywhere [shape=note, style=\"\", label=%s]\n", dotText("everywhere:\n"+strings.Join(everywhere, "\n")))
	}
	out.WriteString("}\n")
	return out.String()
}

func (p *Policy) graphName() string {
	if p.name != "" {
		return p.name
	}
	return "policy"
}

func (p *Policy) dotShape(s State) string {
	if p.states[s].Terminal {
		return ", peripheries=2"
	}
	return ""
}

// dotArrow draws an arrow, bold where it completes the run.
func (p *Policy) dotArrow(out *strings.Builder, a *arrow) {
	label, style := strings.Join(a.labels, "\n"), ""
	if a.done {
		label, style = label+"\n(completes the run)", ", style=bold, arrowhead=normaldot"
	}
	fmt.Fprintf(out, "    s%d -> s%d [label=%s%s]\n", a.from, a.to, dotText(label), style)
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func dotText(text string) string { return `"` + dotEscapes.Replace(text) + `"` }
