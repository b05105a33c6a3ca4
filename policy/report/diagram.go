package report

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// The diagrams are drawn here and not by looplab/fsm's visualizers: those know
// no terminal edges and no outcomes, draw one arrow for each event, sort the
// states by name, and do not escape labels.

// arrow is one arrow of a diagram: all that leads from one state to another, or
// completes the run there.
type arrow struct {
	from policy.State
	policy.Target
	labels []string
}

// arrows gathers the arrows of a policy in the order of its states and
// bindings. What everywhere binds is drawn where it leads on; its stays are
// returned apart, since they would be the same in every state.
func arrows(p *policy.Policy) (all []*arrow, everywhere []string) {
	type key struct {
		from policy.State
		policy.Target
	}
	index := map[key]*arrow{}
	add := func(from policy.State, t policy.Target, label string) {
		k := key{from, t}
		if index[k] == nil {
			index[k] = &arrow{from: from, Target: t}
			all = append(all, index[k])
		}
		index[k].labels = appendNew(index[k].labels, label)
	}
	for s := range p.States() {
		from := policy.State(s)
		if after := p.After(from); after != nil {
			t := after.Leads()
			t.State = t.In(from)
			add(from, t, "after "+strictyaml.DurationText(after.Seconds))
		}
		for b := range p.Effective(from) {
			for w, label := range labels(b, from) {
				if b.Home == policy.Everywhere && !w.Changes(from) {
					continue
				}
				add(from, w.Target, label)
			}
		}
	}
	for _, k := range policy.SymbolKinds {
		for _, b := range p.BindingsIn(policy.Everywhere, k) {
			for w, label := range labels(b, policy.Everywhere) {
				if !w.Changes(policy.Everywhere) {
					everywhere = appendNew(everywhere, label)
				}
			}
		}
	}
	return all, everywhere
}

// back is what is drawn for where a state was entered from.
const back = "back to where it came from"

func returns(a *arrow) bool { return a.State == policy.Origin }

// labels yields each place that a binding leads to from s, with the label of the arrow.
func labels(b *policy.Binding, s policy.State) iter.Seq2[way, string] {
	return func(yield func(way, string) bool) {
		for i := range b.Cases {
			if b.Cases[i].None {
				continue
			}
			for j := range b.Cases[i].Alternatives {
				a := &b.Cases[i].Alternatives[j]
				for _, w := range ways(a, s) {
					if !yield(w, arrowLabel(b, &b.Cases[i], a, w, s)) {
						return
					}
				}
			}
		}
	}
}

// arrowLabel is the label of an arrow from s. What has to hold stands at the arrows that lead on, if there are any.
func arrowLabel(b *policy.Binding, c *policy.Case, a *policy.Alternative, w way, s policy.State) string {
	label := b.Pattern
	if b.Kind != policy.Tool {
		label = b.Kind.String() + " " + label
	}
	if b.From == policy.Operator {
		label += " [operator]"
	}
	if b.By != "" {
		label += fmt.Sprintf(" [%s=%s]", b.By, c.Name)
	}
	if outcomes := when(a, w.outcomes); outcomes != "" {
		label += " (" + outcomes + ")"
	}
	if w.Changes(s) || !a.Leaves(s) {
		label += conditionsOf(a)
	}
	return label
}

// conditionsOf is what has to hold for calls of an alternative, as short as a label has to be.
func conditionsOf(a *policy.Alternative) string {
	var all []string
	for _, x := range terms(a, nil) {
		switch x.What {
		case "for", "when", "at_most":
			all = append(all, x.What+" "+cut(x.Text, 60))
		case "approve":
			all = append(all, "approve by "+a.Approve.By.String())
		}
	}
	if all == nil {
		return ""
	}
	return " [" + strings.Join(all, "; ") + "]"
}

// cut makes a text fit for one line that is not too long.
func cut(text string, most int) string {
	runes := []rune(strictyaml.Printable(strings.Join(strings.Fields(text), " ")))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// Step is what leads from one state to another, as a run has gone there.
type Step struct {
	From, To policy.State
	Complete bool
	What     string // what it was, of a step that no arrow of the policy is: a reload, a restart; "" for a call
}

// Walk is how a run has gone.
type Walk struct {
	Steps []Step
	Label func(Step) string // says when it was
	At    policy.State      // where it stands
}

// Mermaid renders a policy as a Mermaid state diagram.
func Mermaid(p *policy.Policy) string { return mermaid(p, nil) }

// MermaidOf is Mermaid, with the way of a run: its steps are labelled, and the states that it was in stand out.
func MermaidOf(p *policy.Policy, w *Walk) string { return mermaid(p, w) }

func mermaid(p *policy.Policy, w *Walk) string {
	var out strings.Builder
	states := p.States()
	out.WriteString("stateDiagram-v2\n")
	inParts(p, func(depth, part int, name string, open bool) {
		if open {
			fmt.Fprintf(&out, "%sstate \"%s\" as p%d {\n", indent(depth), mermaidText(name), part)
		} else {
			fmt.Fprintf(&out, "%s}\n", indent(depth))
		}
	}, func(depth, s int, name string) {
		fmt.Fprintf(&out, "%sstate \"%s\" as s%d\n", indent(depth), mermaidText(name), s)
	})
	fmt.Fprintf(&out, "    [*] --> s%d\n", p.Initial().State)
	all, everywhere := arrows(p)
	all = w.onto(all, states)
	if slices.ContainsFunc(all, returns) {
		fmt.Fprintf(&out, "    state \"%s\" as back\n", mermaidText(back))
	}
	for _, a := range all {
		// A run that completes in a state that is not terminal goes to the end sign, and
		// the label says where it was.
		to, label := fmt.Sprintf("s%d", a.State), mermaidLabels(a.labels)
		if a.State == policy.Origin {
			to = "back"
		}
		if a.Terminal && !states[a.State].Terminal {
			to = "[*]"
			if a.State != a.from {
				label += "<br/>completes in " + mermaidText(states[a.State].Name)
			}
		}
		fmt.Fprintf(&out, "    s%d --> %s : %s\n", a.from, to, label)
	}
	for s, st := range states {
		if st.Terminal {
			fmt.Fprintf(&out, "    s%d --> [*]\n", s)
		}
	}
	if len(everywhere) > 0 {
		fmt.Fprintf(&out, "    note right of s%d\n        everywhere: %s\n    end note\n", p.Initial().State, mermaidLabels(everywhere))
	}
	w.classes(&out)
	return out.String()
}

// onto labels the arrows that a run has gone by, and adds those of steps that no arrow is. A call that has left its run
// where it was needs none.
func (w *Walk) onto(all []*arrow, states []policy.StateInfo) []*arrow {
	if w == nil {
		return all
	}
	for _, s := range w.Steps {
		i := slices.IndexFunc(all, func(a *arrow) bool {
			return s.What == "" && a.from == s.From && a.State == s.To && (s.From == s.To || (a.Terminal || states[a.State].Terminal) == s.Complete)
		})
		label := signEntry + " " + w.Label(s)
		switch {
		case i >= 0:
			all[i].labels = append([]string{label}, all[i].labels...)
		case s.From != s.To || s.What != "":
			labels := []string{label}
			if s.What != "" {
				labels = append(labels, s.What)
			}
			all = append(all, &arrow{from: s.From, Target: policy.Target{State: s.To}, labels: labels})
		}
	}
	return all
}

// classes has the states stand out that a run was in.
func (w *Walk) classes(out *strings.Builder) {
	if w == nil {
		return
	}
	var been []policy.State
	for _, s := range w.Steps {
		been = append(been, s.From, s.To)
	}
	slices.Sort(been)
	out.WriteString("    classDef been stroke-width:3px\n    classDef here stroke-width:5px,font-weight:bold\n")
	for _, s := range slices.Compact(been) {
		if s != w.At {
			fmt.Fprintf(out, "    class s%d been\n", s)
		}
	}
	fmt.Fprintf(out, "    class s%d here\n", w.At)
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

// DOT renders a policy in Graphviz's language.
func DOT(p *policy.Policy) string {
	var out strings.Builder
	name := p.Name()
	if name == "" {
		name = "policy"
	}
	fmt.Fprintf(&out, "digraph %s {\n", dotText(name))
	out.WriteString("    rankdir=LR\n    node [shape=box, style=rounded]\n    entry [shape=point]\n")
	states := p.States()
	inParts(p, func(depth, part int, name string, open bool) {
		if open {
			fmt.Fprintf(&out, "%ssubgraph cluster_p%d {\n%slabel=%s\n", indent(depth), part, indent(depth+1), dotText(name))
		} else {
			fmt.Fprintf(&out, "%s}\n", indent(depth))
		}
	}, func(depth, s int, name string) {
		shape := ""
		if states[s].Terminal {
			shape = ", peripheries=2"
		}
		fmt.Fprintf(&out, "%ss%d [label=%s%s]\n", indent(depth), s, dotText(name), shape)
	})
	fmt.Fprintf(&out, "    entry -> s%d\n", p.Initial().State)
	all, everywhere := arrows(p)
	if slices.ContainsFunc(all, returns) {
		fmt.Fprintf(&out, "    back [shape=plaintext, label=%s]\n", dotText(back))
	}
	for _, a := range all {
		label, style := strings.Join(a.labels, "\n"), ""
		if a.State == policy.Origin {
			fmt.Fprintf(&out, "    s%d -> back [label=%s]\n", a.from, dotText(label))
			continue
		}
		if a.Terminal {
			label, style = label+"\n(completes the run)", ", style=bold, arrowhead=normaldot"
		}
		fmt.Fprintf(&out, "    s%d -> s%d [label=%s%s]\n", a.from, a.State, dotText(label), style)
	}
	if len(everywhere) > 0 {
		fmt.Fprintf(&out, "    everywhere [shape=note, style=\"\", label=%s]\n", dotText("everywhere:\n"+strings.Join(everywhere, "\n")))
	}
	out.WriteString("}\n")
	return out.String()
}

var dotEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func dotText(text string) string { return `"` + dotEscapes.Replace(text) + `"` }

// inParts calls state for each state, and around those of a part its part, once to open and
// once to close it, each with the name that it has within what it is in.
func inParts(p *policy.Policy, part func(depth, part int, name string, open bool), state func(depth, s int, name string)) {
	parts, index := p.Parts(), map[string]int{"": -1}
	for i := range parts {
		index[parts[i].Name] = i
	}
	var open []int // of parts, each in the one before
	leave := func(until string) {
		for len(open) > 0 && parts[open[len(open)-1]].Name != until {
			open = open[:len(open)-1]
			part(len(open), 0, "", false)
		}
	}
	next := 0
	for s, st := range p.States() {
		for ; next <= index[st.Part]; next++ { // a part is listed before those in it
			leave(parts[next].Within)
			part(len(open), next, within(parts[next].Name, parts[next].Within), true)
			open = append(open, next)
		}
		leave(st.Part)
		state(len(open), s, within(st.Name, st.Part))
	}
	leave("")
}

// within is the name of a state, or part, within a part.
func within(name, part string) string {
	if part == "" {
		return name
	}
	return strings.TrimPrefix(name, part+"/")
}

func indent(depth int) string { return strings.Repeat("    ", depth+1) }
