package policy

import "slices"

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
func (c Change) String() string { return word(changes, c) }

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
func (d Difference) String() string { return word(differences, d) }

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
}

// Same reports whether the reload changes nothing for a run in this state.
func (c StateChange) Same() bool {
	return c.Change == StateKept && c.WasTerminal == c.Terminal && len(c.Names) == 0
}

// NameChange is what a reload does to one name, or glob as it is written, in a
// state.
type NameChange struct {
	Difference Difference `json:"difference"`
	Kind       Kind       `json:"kind"`
	Pattern    string     `json:"pattern"`
	// Was and Now are what held for it and holds, zero where nothing does.
	Was Holding `json:"was,omitzero"`
	Now Holding `json:"now,omitzero"`
	// Edges are the outcomes that lead elsewhere, those of a name that is lost or
	// gained included.
	Edges []EdgeChange `json:"edges"`
}

// Holding is the binding that holds for a name in a state.
type Holding struct {
	Pattern string `json:"pattern"`      // as written; a wider glob may hold for a name
	Glob    bool   `json:"glob"`         // only what the upstream lists is bound
	By      string `json:"by,omitempty"` // the argument that splits it
	Rule    Rule   `json:"-"`            // where it stands
}

// EdgeChange is where outcomes of one symbol led and lead now: the zero Lead
// where there is no such symbol.
type EdgeChange struct {
	By       string    `json:"by,omitempty"`
	Case     string    `json:"case,omitempty"` // with By
	Outcomes []Outcome `json:"outcomes"`
	Was      Lead      `json:"was,omitzero"`
	Now      Lead      `json:"now,omitzero"`
}

// Compare says what a reload of new in place of old does to each state: first
// those of old, then those that are new, in the order of their files. Names are
// compared after precedence and none, globs as they are written, and edges as
// where each outcome leads once states are renamed. Nothing is overlooked: a state
// in which nothing differs allows, and steps, what it did before.
func Compare(old, new *Policy) []StateChange {
	d := differ{old, new}
	var out []StateChange
	heirs := map[State]bool{}
	for s := range old.states {
		heir, ok := new.heir(old.states[s].Name)
		if !ok {
			out = append(out, d.stranded(State(s)))
			continue
		}
		heirs[heir] = true
		out = append(out, d.moved(State(s), heir))
	}
	for s, st := range new.states {
		if !heirs[State(s)] {
			out = append(out, StateChange{Change: StateNew, New: st.Name, Terminal: st.Terminal})
		}
	}
	return out
}

// differ compares two policies.
type differ struct{ old, new *Policy }

// stranded is the change of a state of old that is gone.
func (d differ) stranded(s State) StateChange {
	st := &d.old.states[s]
	out := StateChange{Change: StateStranded, Old: st.Name, WasTerminal: st.Terminal}
	for k, patterns := range d.patterns(s, nowhere) {
		for _, pattern := range patterns {
			if was := d.old.held(s, Kind(k), pattern); was != nil {
				if n := d.name(pattern, side{s, was}, side{}); d.keepsLost(&n) {
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
	if !d.new.boundSomewhere(n.Kind, n.Pattern, true) {
		return true
	}
	n.Difference = Altered
	n.Edges = slices.DeleteFunc(n.Edges, func(e EdgeChange) bool {
		return d.new.DecideAnywhere(n.Kind, n.Pattern, true, func(name string) (string, bool) { return e.Case, e.By == name }).Allowed
	})
	return len(n.Edges) > 0
}

// moved is the change of state s of old that becomes t.
func (d differ) moved(s, t State) StateChange {
	was, now := &d.old.states[s], &d.new.states[t]
	out := StateChange{Old: was.Name, New: now.Name, WasTerminal: was.Terminal, Terminal: now.Terminal}
	if was.Name != now.Name {
		out.Change = StateRenamed
	}
	for k, patterns := range d.patterns(s, t) {
		for _, pattern := range patterns {
			n := d.name(pattern, side{s, d.old.held(s, Kind(k), pattern)}, side{t, d.new.held(t, Kind(k), pattern)})
			if n.differs() {
				out.Names = append(out.Names, n)
			}
		}
	}
	return out
}

// nowhere is no state.
const nowhere State = -1

// patterns are all patterns that have a say in s of old or t of new, each once.
func (d differ) patterns(s, t State) (out [Kinds][]string) {
	seen := [Kinds]map[string]bool{{}, {}, {}}
	add := func(b *binding) {
		if !seen[b.kind][b.rule.Pattern] {
			seen[b.kind][b.rule.Pattern] = true
			out[b.kind] = append(out[b.kind], b.rule.Pattern)
		}
	}
	d.old.effective(s, add)
	if t != nowhere {
		d.new.effective(t, add)
	}
	return out
}

// held returns the binding under which a pattern is bound in a state, nil if it
// is not. A glob stands for itself as the name that is hardest to match, so a
// wider glob holds where it is not given: see includes.
func (p *Policy) held(s State, k Kind, pattern string) *binding {
	return p.holds(Configuration{State: s}, k, pattern, true)
}

// side is what one policy says of a name.
type side struct {
	state State
	*binding
}

func (x side) holding() Holding {
	if x.binding == nil {
		return Holding{}
	}
	return Holding{Pattern: x.rule.Pattern, Glob: x.glob, By: x.by, Rule: x.rule}
}

// under returns the edges of one case, or the only ones where by is "", nil if
// there are none.
func (x side) under(by, text string) *edges {
	switch {
	case x.binding == nil || x.by != by:
		return nil
	case by == "":
		return &x.edges
	}
	return x.caseOf[text]
}

// each calls f for the edges of every case, or for the only ones.
func (x side) each(f func(text string, e *edges)) {
	if x.binding != nil {
		x.binding.each(f)
	}
}

// name compares what two states say of a name.
func (d differ) name(pattern string, was, now side) NameChange {
	out := NameChange{Pattern: pattern, Was: was.holding(), Now: now.holding()}
	switch {
	case was.binding == nil && now.binding == nil:
		return out
	case was.binding == nil:
		out.Difference, out.Kind = Gained, now.kind
	case now.binding == nil:
		out.Difference, out.Kind = Lost, was.kind
	default:
		out.Difference, out.Kind = Altered, was.kind
	}
	was.each(func(text string, _ *edges) {
		out.Edges = append(out.Edges, d.edges(was, now, was.by, text)...)
	})
	now.each(func(text string, _ *edges) {
		if was.under(now.by, text) == nil {
			out.Edges = append(out.Edges, d.edges(was, now, now.by, text)...)
		}
	})
	return out
}

// differs reports whether calls are decided or stepped in another way.
func (n NameChange) differs() bool {
	return len(n.Edges) > 0 || !isGlob(n.Pattern) && n.Was.Glob != n.Now.Glob
}

// edges compares one symbol, and puts outcomes together that do alike.
func (d differ) edges(was, now side, by, text string) []EdgeChange {
	a, b := was.under(by, text), now.under(by, text)
	var out []EdgeChange
	for i, o := range allOutcomes {
		if a != nil && b != nil && d.sameLead(a, b, was.state, now.state, i) {
			continue
		}
		c := EdgeChange{By: by, Case: text, Was: d.old.lead(a, was.state, i), Now: d.new.lead(b, now.state, i)}
		if n := len(out); n > 0 && out[n-1].Was == c.Was && out[n-1].Now == c.Now {
			out[n-1].Outcomes = append(out[n-1].Outcomes, o)
			continue
		}
		c.Outcomes = []Outcome{o}
		out = append(out, c)
	}
	return out
}

// sameLead reports whether an outcome leads to the same place from s of old and
// from t of new, once states are renamed.
func (d differ) sameLead(a, b *edges, s, t State, outcome int) bool {
	x, y := a.to[outcome], b.to[outcome]
	heir, ok := d.new.heir(d.old.StateName(x.in(s)))
	return ok && heir == y.in(t) && x.terminal == y.terminal && a.exclusive == b.exclusive
}

// lead says where an outcome leads from s, the zero Lead without edges.
func (p *Policy) lead(e *edges, s State, outcome int) Lead {
	if e == nil {
		return Lead{}
	}
	return p.leads(e.to[outcome], s, e.exclusive)
}
