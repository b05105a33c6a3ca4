package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Change is what a reload does to a state. The zero value is StateKept.
type Change uint8

// What a reload does to a state.
const (
	StateKept     Change = iota // there is a state of the same name
	StateRenamed                // renamed gives it another
	StateStranded               // it is gone, and runs that rest there are stranded
	StateNew                    // no state of the policy before becomes it
)

// String returns "kept", "renamed", "stranded" or "new".
func (c Change) String() string { return changes[c] }

// MarshalText returns the change's word, for JSON.
func (c Change) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Difference is what a reload does to a name in a state. The zero value is Lost.
type Difference uint8

// What a reload does to a name in a state.
const (
	Lost    Difference = iota // it was bound, and is not any more
	Gained                    // it is bound, and was not
	Altered                   // it leads elsewhere, or other calls of it are allowed
)

// String returns "lost", "gained" or "altered".
func (d Difference) String() string { return differences[d] }

// MarshalText returns the difference's word, for JSON.
func (d Difference) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

var (
	changes     = []string{"kept", "renamed", "stranded", "new"}
	differences = []string{"lost", "gained", "altered"}
)

// StateChange is what a reload does to one state.
type StateChange struct {
	Change Change `json:"change"`
	// Old and New are its names before and after: Old is "" for a new state, New
	// for a stranded one.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// WasTerminal and Terminal are whether it is terminal before and after. A run
	// that rests in a state that becomes terminal completes at once.
	WasTerminal bool `json:"was_terminal,omitempty"`
	Terminal    bool `json:"terminal,omitempty"`
	// Names are the differences in a state that is kept or renamed. In a stranded
	// one they are what the new policy binds nowhere, thus lost to kept runs too;
	// altered, where that is some cases of a name.
	// A new state has none.
	Names []NameChange `json:"names"`
	// Terms are what holds for all calls in a state that is kept or renamed, where it differs.
	Terms []TermChange `json:"terms,omitempty"`
}

// Same reports whether the reload changes nothing for a run in this state.
func (c StateChange) Same() bool {
	return c.Change == StateKept && c.WasTerminal == c.Terminal && len(c.Names) == 0 && len(c.Terms) == 0
}

// NameChange is what a reload does to one name, or glob as it is written, in a
// state.
type NameChange struct {
	Difference Difference  `json:"difference"`
	Kind       policy.Kind `json:"kind"`
	Pattern    string      `json:"pattern"`
	// Was and Now are what applied to it and applies, zero where nothing does.
	Was Applied `json:"was,omitzero"`
	Now Applied `json:"now,omitzero"`
	// Edges are the outcomes that lead elsewhere, those of a name that is lost or
	// gained included.
	Edges []EdgeChange `json:"edges"`
	// Terms are what else holds for its calls and differs, or is new: conditions, what
	// outcomes are, what is set. Of what is lost there are none.
	Terms []TermChange `json:"terms,omitempty"`
}

// Applied is the binding that applies to a name in a state.
type Applied struct {
	Pattern string        `json:"pattern"`       // as written; a wider glob may apply to a name
	Glob    bool          `json:"glob"`          // only what the upstream lists is bound
	By      string        `json:"by,omitempty"`  // the argument that splits it
	From    policy.Sender `json:"from,omitzero"` // of a signal
	Says    string        `json:"-"`             // a signal's description
	Rule    policy.Rule   `json:"-"`             // where it stands
}

// EdgeChange is where outcomes of one symbol led and lead now: the zero Lead
// where there is no such symbol.
type EdgeChange struct {
	By   string `json:"by,omitempty"`
	Case string `json:"case,omitempty"` // with By
	// Alternative is which it is of several, from 1.
	Alternative int      `json:"alternative,omitzero"`
	Outcomes    []string `json:"outcomes"`
	Was         Lead     `json:"was,omitzero"`
	Now         Lead     `json:"now,omitzero"`

	value policy.Argument // of the case
}

// Compare says what a reload of new in place of old does to each state: first
// those of old, then those that are new, in the order of their files. Names are
// compared after precedence and none, globs as they are written, and edges as
// where each outcome leads once states are renamed. Nothing is overlooked: a state
// in which nothing differs allows, and steps, what it did before.
func Compare(old, new *policy.Policy) []StateChange {
	d := differ{old, new}
	var out []StateChange
	heirs := map[policy.State]bool{}
	for s, st := range old.States() {
		heir, ok := new.Heir(st.Name)
		if !ok {
			out = append(out, d.stranded(policy.State(s)))
			continue
		}
		heirs[heir] = true
		out = append(out, d.moved(policy.State(s), heir))
	}
	for s, st := range new.States() {
		if !heirs[policy.State(s)] {
			out = append(out, StateChange{Change: StateNew, New: st.Name, Terminal: st.Terminal})
		}
	}
	return out
}

// differ compares two policies.
type differ struct{ old, new *policy.Policy }

// stranded is the change of a state of old that is gone.
func (d differ) stranded(s policy.State) StateChange {
	st := d.old.State(s)
	out := StateChange{Change: StateStranded, Old: st.Name, WasTerminal: st.Terminal}
	for k, patterns := range d.patterns(s, nowhere) {
		for _, pattern := range patterns {
			if was := sideOf(d.old, s, policy.Kind(k), pattern); was.Binding != nil {
				if n := d.name(pattern, was, side{}); d.keepsLost(&n) {
					out.Names = append(out.Names, n)
				}
			}
		}
	}
	return out
}

// keepsLost keeps of a name that is lost what the new policy allows in no state,
// and reports whether that is anything. What it allows in some is not lost, but
// the name altered.
func (d differ) keepsLost(n *NameChange) bool {
	if !d.new.BoundAnywhere(n.Kind, n.Pattern, true) {
		return true
	}
	n.Difference = Altered
	n.Edges = slices.DeleteFunc(n.Edges, func(e EdgeChange) bool {
		return d.new.DecideAnywhere(&policy.Request{Kind: n.Kind, Name: n.Pattern, Listed: true, Args: policy.Lookup(func(path []string) policy.Argument {
			if strings.Join(path, ".") == e.By {
				return e.value
			}
			return policy.Argument{}
		})}).Allowed
	})
	return len(n.Edges) > 0
}

// moved is the change of state s of old that becomes t.
func (d differ) moved(s, t policy.State) StateChange {
	was, now := d.old.State(s), d.new.State(t)
	out := StateChange{Old: was.Name, New: now.Name, WasTerminal: was.Terminal, Terminal: now.Terminal,
		Terms: termChanges(TermChange{}, append(stateTerms(d.old, s, d.heirOf), askingTerm(d.old, s)), append(stateTerms(d.new, t, same), askingTerm(d.new, t)))}
	if was.Name != now.Name {
		out.Change = StateRenamed
	}
	for k, patterns := range d.patterns(s, t) {
		for _, pattern := range patterns {
			n := d.name(pattern, sideOf(d.old, s, policy.Kind(k), pattern), sideOf(d.new, t, policy.Kind(k), pattern))
			if n.differs() {
				out.Names = append(out.Names, n)
			}
		}
	}
	return out
}

// nowhere is no state.
const nowhere policy.State = -1

// patterns returns all patterns that have a say in s of old or t of new, each once.
func (d differ) patterns(s, t policy.State) (out [len(policy.SymbolKinds)][]string) {
	seen := [len(policy.SymbolKinds)]map[string]bool{{}, {}, {}, {}}
	add := func(p *policy.Policy, s policy.State) {
		for b := range p.Effective(s) {
			if !seen[b.Kind][b.Pattern] {
				seen[b.Kind][b.Pattern] = true
				out[b.Kind] = append(out[b.Kind], b.Pattern)
			}
		}
	}
	add(d.old, s)
	if t != nowhere {
		add(d.new, t)
	}
	return out
}

// side is what one policy says of a name in a state: nothing where it has no binding.
type side struct {
	state policy.State
	*policy.Binding
}

func sideOf(p *policy.Policy, s policy.State, k policy.Kind, pattern string) side {
	return side{s, p.Binding(policy.Configuration{State: s}, k, pattern, true)}
}

func (x side) applied() Applied {
	if x.Binding == nil {
		return Applied{}
	}
	return Applied{Pattern: x.Pattern, Glob: x.Glob, By: x.By, From: x.From, Says: x.Says, Rule: x.Rule}
}

// under returns the alternatives that hold here for a case of a binding that is split by an
// argument, or for the only case where by is "", none if it is refused. A glob among cases stands for
// itself as the text that is hardest to match.
func (x side) under(by string, c *policy.Case) []policy.Alternative {
	if x.Binding == nil || x.By != by {
		return nil
	}
	if selected := x.Select(c.Value); selected != nil && !selected.None {
		return selected.Alternatives
	}
	return nil
}

// has reports whether a case of a binding that is split by an argument stands here too.
func (x side) has(by string, c *policy.Case) bool {
	return x.Binding != nil && x.By == by && x.Like(c) != nil
}

// cases returns the cases of the binding, none where there is none.
func (x side) cases() []policy.Case {
	if x.Binding == nil {
		return nil
	}
	return x.Cases
}

// name compares what two states say of a name.
func (d differ) name(pattern string, was, now side) NameChange {
	out := NameChange{Pattern: pattern, Was: was.applied(), Now: now.applied()}
	switch {
	case was.Binding == nil && now.Binding == nil:
		return out
	case was.Binding == nil:
		out.Difference, out.Kind = Gained, now.Kind
	case now.Binding == nil:
		out.Difference, out.Kind = Lost, was.Kind
	default:
		out.Difference, out.Kind = Altered, was.Kind
	}
	add := func(by string, c *policy.Case) {
		out.Edges = append(out.Edges, d.edges(was, now, by, c)...)
		out.Terms = append(out.Terms, d.terms(was, now, by, c)...)
	}
	for i := range was.cases() {
		add(was.By, &was.Cases[i])
	}
	for i := range now.cases() {
		if c := &now.Cases[i]; !was.has(now.By, c) {
			add(now.By, c)
		}
	}
	if now.Binding != nil && out.Was.Says != out.Now.Says {
		out.Terms = append(out.Terms, TermChange{What: "description", Was: out.Was.Says, Now: out.Now.Says})
	}
	return out
}

// differs reports whether calls are decided or stepped in another way.
func (n NameChange) differs() bool {
	return len(n.Edges) > 0 || len(n.Terms) > 0 || n.Was.From != n.Now.From || !policy.IsGlob(n.Pattern) && n.Was.Glob != n.Now.Glob
}

// edges compares one symbol, alternative by alternative.
func (d differ) edges(was, now side, by string, of *policy.Case) (out []EdgeChange) {
	a, b := was.under(by, of), now.under(by, of) // both nil: none before, none or nothing now
	for i := range max(len(a), len(b)) {
		var x, y *policy.Alternative
		if i < len(a) {
			x = &a[i]
		}
		if i < len(b) {
			y = &b[i]
		}
		c := EdgeChange{By: by, Case: of.Name, value: of.Value}
		if max(len(a), len(b)) > 1 {
			c.Alternative = i + 1
		}
		out = append(out, d.leads(was.state, now.state, c, x, y)...)
	}
	return out
}

// leads compares one alternative, which one side may lack, outcome by outcome, each by its name,
// and puts outcomes together that do alike.
func (d differ) leads(s, t policy.State, c EdgeChange, a, b *policy.Alternative) (out []EdgeChange) {
	for _, name := range outcomeNames(a, b) {
		if a != nil && b != nil && d.sameLead(a, b, s, t, name) {
			continue
		}
		c.Was, c.Now = namedLead(d.old, a, s, name), namedLead(d.new, b, t, name)
		if n := len(out); n > 0 && out[n-1].Was == c.Was && out[n-1].Now == c.Now {
			out[n-1].Outcomes = append(out[n-1].Outcomes, name)
			continue
		}
		c.Outcomes = []string{name}
		out = append(out, c)
	}
	return out
}

// outcomeNames are the names of the outcomes of two alternatives, either of which may be nil.
func outcomeNames(both ...*policy.Alternative) (names []string) {
	for _, a := range both {
		if a != nil {
			for _, o := range a.AllOutcomes() {
				names = appendNew(names, a.OutcomeName(o))
			}
		}
	}
	return names
}

// outcomeOf returns the outcome of a name; ok is false where an alternative has none.
func outcomeOf(a *policy.Alternative, name string) (o policy.Outcome, ok bool) {
	for _, o := range a.AllOutcomes() {
		if a.OutcomeName(o) == name {
			return o, true
		}
	}
	return 0, false
}

// namedLead says where an outcome of a name leads from s. Where an alternative has no such
// outcome, the result is what it is by its form: a success or an error.
func namedLead(p *policy.Policy, a *policy.Alternative, s policy.State, name string) Lead {
	if a == nil {
		return Lead{}
	}
	if o, ok := outcomeOf(a, name); ok {
		return leadOf(p, a, s, o)
	}
	if lead := leadOf(p, a, s, policy.Success); lead == leadOf(p, a, s, policy.Error) {
		return lead
	}
	return Lead{As: "success or error"}
}

// sameLead reports whether an outcome of both leads to the same place from s of old and
// from t of new, once states are renamed.
func (d differ) sameLead(a, b *policy.Alternative, s, t policy.State, name string) bool {
	of, inA := outcomeOf(a, name)
	heirOf, inB := outcomeOf(b, name)
	if !inA || !inB {
		return false
	}
	if a.Timeout != b.Timeout || a.Irreversible != b.Irreversible {
		return false
	}
	x, y := a.Leads(of), b.Leads(heirOf)
	if x.State == policy.Origin && y.State == policy.Origin { // both of the state, or both of a part
		return (d.old.Returns(x, s) == d.old.StateName(s)) == (d.new.Returns(y, t) == d.new.StateName(t)) && a.Exclusive == b.Exclusive
	}
	if x.State == policy.Origin || y.State == policy.Origin {
		return false
	}
	heir, ok := d.new.Heir(d.old.StateName(x.In(s)))
	return ok && heir == y.In(t) && x.Terminal == y.Terminal && a.Exclusive == b.Exclusive
}

// CompareText renders what a reload of new in place of old does, for a terminal
// or a pull request: what changes for every run, then each state as Compare has
// it, and a summary in the last line.
func CompareText(old, new *policy.Policy) string {
	var out strings.Builder
	c := compareText{&out, old, new, Compare(old, new)}
	fmt.Fprintf(&out, "%s\n", c.title())
	c.settings()
	for _, x := range c.states {
		c.state(x)
	}
	fmt.Fprintf(&out, "\n%s: %s\n", c.title(), c.summary())
	return trimLines(out.String())
}

// compareText is what CompareText writes.
type compareText struct {
	io.Writer
	old, new *policy.Policy
	states   []StateChange
}

func (c *compareText) title() string {
	return strictyaml.Printable(c.old.File()) + " " + signTo + " " + strictyaml.Printable(c.new.File())
}

// settings writes what a reload changes for every run.
func (c *compareText) settings() {
	was := c.old.StateName(c.old.Initial().State)
	if heir, ok := c.new.Heir(was); !ok || heir != c.new.Initial().State {
		fmt.Fprintf(c, "  initial: runs begin in %s, was %s\n", c.initial(), strictyaml.Printable(was))
	}
	if c.old.OnComplete() != c.new.OnComplete() {
		fmt.Fprintf(c, "  on_complete: %s, was %s\n", c.new.OnComplete(), c.old.OnComplete())
	}
	for _, x := range SettingChanges(c.old, c.new) {
		fmt.Fprintf(c, "  %s\n", x)
	}
	if c.pins() {
		fmt.Fprintf(c, "  on_reload: pin: runs under way stay on the policy that they began with, and may call only what %s binds somewhere\n", strictyaml.Printable(c.new.File()))
	}
	for _, r := range c.new.Renamed() {
		if _, ok := c.old.StateByName(r.Old); !ok {
			fmt.Fprintf(c, "  renamed: %s is no state of %s, so nothing moves to %s\n", strictyaml.Printable(r.Old), strictyaml.Printable(c.old.File()), strictyaml.Printable(r.New))
		}
	}
}

// initial names the state in which runs of the new policy begin.
func (c *compareText) initial() string {
	return strictyaml.Printable(c.new.StateName(c.new.Initial().State))
}

// pins reports whether runs stay on the policy that they began with.
func (c *compareText) pins() bool { return c.new.OnReload() == policy.ReloadPin }

// state writes a state and a row for each way in which it differs.
func (c *compareText) state(x StateChange) {
	fmt.Fprintf(c, "\n%s\n", c.headline(x))
	if x.Change == StateStranded && !c.pins() && c.new.Stranded() != policy.StrandedKeep { // no run rests there
		return
	}
	for _, term := range x.Terms {
		fmt.Fprintf(c, "    %s\n", term)
	}
	w := tabwriter.NewWriter(c, 0, 0, 2, ' ', 0)
	for _, n := range x.Names {
		mark, name := n.Difference.sign()+" "+n.Kind.String(), strictyaml.Printable(n.Pattern)
		for _, r := range n.rows() {
			fmt.Fprintf(w, "    %s\t%s\t%s\n", mark, strings.TrimSpace(name+" "+r.name), r.leads)
			mark, name = "", ""
		}
	}
	w.Flush()
}

// headline says what becomes of a state and of the runs that rest there.
func (c *compareText) headline(x StateChange) string {
	switch x.Change {
	case StateNew:
		return strictyaml.Printable(x.New) + ": new"
	case StateStranded:
		return strictyaml.Printable(x.Old) + ": " + c.strandedText(x)
	case StateRenamed:
		return strictyaml.Printable(x.Old) + ": renamed to " + strictyaml.Printable(x.New) + c.terminalText(x)
	}
	return strictyaml.Printable(x.Old) + ": kept" + c.terminalText(x)
}

func (c *compareText) strandedText(x StateChange) string {
	text := "stranded (stranded: " + c.new.Stranded().String() + ")"
	if c.pins() {
		text = "stranded (on_reload: pin)"
	}
	switch {
	case x.WasTerminal:
		return text + "; terminal, so only a completed run rests here"
	case c.pins():
		return text + "; a run that rests here goes on by the policy that it began with" + c.tightened(x)
	case c.new.Stranded() == policy.StrandedRestart:
		return text + "; a run that rests here begins anew in " + c.initial()
	case c.new.Stranded() == policy.StrandedRefuse:
		return text + "; every call of a run that rests here is refused"
	}
	return text + "; a run that rests here goes on by the old policy until it is in a state that the new one has" + c.tightened(x)
}

// tightened introduces the names that a kept run loses.
func (c *compareText) tightened(x StateChange) string {
	if len(x.Names) == 0 {
		return ""
	}
	return ", without what the new one binds nowhere:"
}

// terminalText says what follows where a state becomes terminal or ceases to be.
func (c *compareText) terminalText(x StateChange) string {
	switch {
	case x.WasTerminal == x.Terminal:
		return ""
	case x.WasTerminal:
		return "; not terminal any more"
	case c.new.OnComplete() == policy.Restart:
		return "; terminal now: a run that rests here completes and begins anew in " + c.initial()
	}
	return "; terminal now: a run that rests here completes"
}

func (d Difference) sign() string {
	switch d {
	case Gained:
		return "+"
	case Lost:
		return "-"
	}
	return "~"
}

// rows are what is to say of a name, a line each.
func (n NameChange) rows() []textRow {
	if n.Difference == Lost {
		return []textRow{{}}
	}
	var rows []textRow
	if how := n.how(); how != "" {
		rows = append(rows, textRow{leads: how})
	}
	last := ""
	add := func(label, text string) {
		shown := label
		if label == last && len(rows) > 0 {
			shown = ""
		}
		rows, last = append(rows, textRow{shown, text}), label
	}
	for _, e := range n.Edges {
		if leads, ok := n.leads(e); ok {
			add(labelOf(e.By, e.Case, e.Alternative), leads)
		}
	}
	for _, x := range n.Terms {
		add(labelOf(x.By, x.Case, x.Alternative), x.String())
	}
	return rows
}

// labelOf names a case, and an alternative, of a name.
func labelOf(by, name string, alternative int) (label string) {
	if by != "" {
		label = fmt.Sprintf("[%s=%s]", strictyaml.Printable(by), strictyaml.Printable(name))
	}
	if alternative > 0 {
		label += fmt.Sprintf(" [%d]", alternative)
	}
	return strings.TrimSpace(label)
}

// how says that a name is bound in another way than before, "" if it is not.
func (n NameChange) how() string {
	switch {
	case n.Difference != Altered, n.Now == Applied{}: // of the latter some cases are lost
		return ""
	case n.Was.From != n.Now.From:
		return "from " + n.Now.From.String() + ", was from " + n.Was.From.String()
	case n.Was.By != n.Now.By:
		return splitText(n.Now.By) + ", was " + splitText(n.Was.By)
	case policy.IsGlob(n.Pattern) || n.Was.Glob == n.Now.Glob:
		return ""
	case n.Now.Glob:
		return "by " + strictyaml.Printable(n.Now.Pattern) + ", so only where the upstream lists it, was by its name"
	}
	return "by its name, was by " + strictyaml.Printable(n.Was.Pattern)
}

func splitText(by string) string {
	if by == "" {
		return "not split"
	}
	return "split by " + strictyaml.Printable(by)
}

// leads says where an edge leads and led; ok is false where it goes without
// saying, since another split has other edges.
func (n NameChange) leads(e EdgeChange) (text string, ok bool) {
	text = strings.TrimSpace(whenever(e.Outcomes) + " " + e.Now.String())
	switch {
	case n.Difference == Gained:
		return text, true
	case n.Now != Applied{} && n.Was.By != n.Now.By:
		return text, e.Now != Lead{}
	}
	return text + ", was " + e.Was.String(), true
}

// summary counts the states.
func (c *compareText) summary() string {
	var counts [len(changeOrder)]int
	differ := 0
	for _, x := range c.states {
		counts[x.Change]++
		if x.Change == StateKept && !x.Same() {
			differ++
		}
	}
	kept := count(counts[StateKept], "state") + " kept"
	if differ > 0 {
		kept += fmt.Sprintf(" (%d changed)", differ)
	}
	parts := []string{kept}
	for _, x := range changeOrder[StateRenamed:] {
		if counts[x] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[x], x))
		}
	}
	return strings.Join(parts, ", ")
}

// changeOrder lists every change, each at its own place.
var changeOrder = [...]Change{StateKept, StateRenamed, StateStranded, StateNew}
