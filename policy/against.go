package policy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Offer is one item that a live upstream lists. The zero value is a tool with no
// name that may do anything.
type Offer struct {
	Kind Kind
	Name string
	// Idempotent and ReadOnly are the tool's annotations: doing it twice does no
	// more than once, or it changes nothing.
	Idempotent, ReadOnly bool
	// Argument says what the item says of an argument; nil says nothing.
	Argument func(name string) Argument
}

// Against checks the policy against what a live upstream lists. templateServes
// says whether one of the upstream's resource templates may serve a URI; nil is
// none. The findings do not repeat those of Parse but where the upstream makes one
// graver or lighter: see Findings.Merge.
func (p *Policy) Against(offers []Offer, templateServes func(uri string) bool) Findings {
	m := &matcher{r: newReader(p.file), p: p, serves: templateServes}
	for _, o := range offers {
		if int(o.Kind) < Kinds {
			m.offers[o.Kind] = append(m.offers[o.Kind], o)
		}
	}
	for _, k := range AllKinds {
		m.checkBindings(k)
		m.checkArguments(k)
		m.noteUnbound(k)
	}
	m.judgeUnknown()
	return m.r.Findings()
}

// AgainstNames checks one kind against what a live upstream lists of it: which
// bindings lead nowhere, and which names are bound in no state. templateServes is
// as for Against.
func (p *Policy) AgainstNames(k Kind, names []string, templateServes func(uri string) bool) Findings {
	if int(k) >= Kinds {
		return nil
	}
	m := &matcher{r: newReader(p.file), p: p, serves: templateServes}
	for _, name := range names {
		m.offers[k] = append(m.offers[k], Offer{Kind: k, Name: name})
	}
	m.checkBindings(k)
	m.noteUnbound(k)
	return m.r.Findings()
}

// AgainstHandles says which tools that the policy binds are out of reach where a
// call carries its run's handle as an argument. why has the reason for each listed
// tool that cannot take one, the rest of a sentence.
func (p *Policy) AgainstHandles(why map[string]string, level Level) Findings {
	r := newReader(p.file)
	for _, tool := range slices.Sorted(maps.Keys(why)) {
		for _, b := range p.holding(Tool, tool) {
			r.AddAbout(level, at{Line: b.rule.Line, Column: b.rule.Column}, "no-handle", tool,
				"%s%s, the default for modern clients over HTTP: %s; choose modern=principal or modern=path",
				strictyaml.Quote(tool), outOfReach.one, why[tool])
		}
	}
	return r.Findings()
}

// matcher compares a policy with an upstream's lists.
type matcher struct {
	r      reader
	p      *Policy
	serves func(string) bool
	offers [Kinds][]Offer
}

// checkBindings looks at every pattern of the policy once, where it first stands
// with and without none.
func (m *matcher) checkBindings(k Kind) {
	names := m.names(k)
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	type key struct {
		pattern string
		none    bool
	}
	seen := map[key]bool{}
	for _, b := range m.p.bindings(k) {
		if id := (key{b.rule.Pattern, b.none}); !seen[id] {
			seen[id] = true
			m.checkBinding(b, names, known)
		}
	}
}

func (m *matcher) checkBinding(b *binding, names []string, known map[string]bool) {
	pattern, place := b.rule.Pattern, at{Line: b.rule.Line, Column: b.rule.Column}
	matches := func(n string) bool { return matchGlob(pattern, n) }
	switch {
	case b.glob && slices.ContainsFunc(names, matches):
	case b.glob && b.none:
		m.r.Add(LevelNote, place, "matches-nothing", "%s: the upstream lists no such %s, so there is nothing to unbind", strictyaml.Quote(pattern), b.kind)
	case b.glob:
		m.r.Add(LevelWarning, place, "matches-nothing", "%s matches no %s that the upstream lists%s", strictyaml.Quote(pattern), b.kind, offered(names))
	case known[pattern] || m.served(b):
	case b.none:
		m.r.Add(LevelNote, place, "unknown-name", "%s: the upstream lists no such %s, so there is nothing to unbind%s", strictyaml.Quote(pattern), b.kind, m.r.DidYouMean(pattern, names))
	default:
		hint := m.r.DidYouMean(pattern, names)
		if hint == "" {
			hint = offered(names)
		}
		m.r.Errorf(place, "unknown-name", "the upstream lists no %s %s%s", b.kind, strictyaml.Quote(pattern), hint)
	}
}

func offered(names []string) string {
	if len(names) == 0 {
		return "; it lists none"
	}
	return fmt.Sprintf("; it lists %s", strictyaml.And(names))
}

// served reports whether only a template serves a bound URI.
func (m *matcher) served(b *binding) bool {
	return b.kind == Resource && m.serves != nil && m.serves(b.rule.Pattern)
}

func (m *matcher) names(k Kind) []string {
	names := make([]string, len(m.offers[k]))
	for i, o := range m.offers[k] {
		names[i] = o.Name
	}
	return names
}

func (m *matcher) noteUnbound(k Kind) {
	for _, n := range m.names(k) {
		if !m.p.boundSomewhere(k, n, true) {
			m.r.Add(LevelNote, at{}, "unbound", "the upstream's %s %s is bound in no state, so it does not exist", k, strictyaml.Quote(n))
		}
	}
}

// judgeUnknown says of each tool that leads on without on_unknown whether it does
// more when it is called twice: a warning then, else a note.
func (m *matcher) judgeUnknown() {
	risky := map[*binding][]string{}
	held := map[*binding]bool{}
	for _, o := range m.offers[Tool] {
		for _, b := range m.p.holding(Tool, o.Name) {
			held[b] = true
			if !o.Idempotent && !o.ReadOnly {
				risky[b] = append(risky[b], o.Name)
			}
		}
	}
	for _, b := range m.p.bindings(Tool) {
		if !b.lacksUnknown() {
			continue
		}
		place, pattern := at{Line: b.rule.Line, Column: b.rule.Column}, strictyaml.Quote(b.rule.Pattern)
		switch names := risky[b]; {
		case len(names) > 0:
			what := "it"
			if b.glob {
				what = strictyaml.And(names)
			}
			m.r.AddAbout(LevelWarning, place, noOnUnknown, b.rule.Pattern,
				"%s%s, and the upstream does not call %s idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again)",
				pattern, lacksUnknown.one, what)
		case held[b] || b.glob: // a glob binds nothing but what is listed
			m.r.AddAbout(LevelNote, place, noOnUnknown, b.rule.Pattern,
				"%s%s; the upstream lists no tool under it that does more when it is called twice", pattern, lacksUnknown.one)
		}
	}
}

// bindings returns every binding of a kind, everywhere's first.
func (p *Policy) bindings(k Kind) []*binding {
	out := slices.Clone(p.everywhere[k].order)
	for s := range p.states {
		out = append(out, p.states[s].own[k].order...)
	}
	return out
}

// holding returns the bindings, each once, under which a listed name is bound.
func (p *Policy) holding(k Kind, name string) []*binding {
	var out []*binding
	for s := range p.states {
		b := p.lookup(State(s), k, name, true)
		if b != nil && !b.none && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}
