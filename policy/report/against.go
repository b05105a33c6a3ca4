package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Offer is one item that a live upstream lists. The zero value is a tool with no
// name that may do anything.
type Offer struct {
	Kind policy.Kind
	Name string
	// Idempotent and ReadOnly are the tool's annotations: doing it twice does no
	// more than once, or it changes nothing.
	Idempotent, ReadOnly bool
	// Argument says what the item says of the argument at a path; nil says nothing.
	Argument func(path []string) Argument
	// Result says the same of what is at a path in the structuredContent of its results.
	Result func(path []string) Argument
}

// Against checks a policy against what a live upstream lists. templateServes
// says whether one of the upstream's resource templates may serve a URI; nil is
// none. The findings do not repeat those of Check but where the upstream makes one
// graver or lighter: see policy.Findings.Merge.
func Against(p *policy.Policy, offers []Offer, templateServes func(uri string) bool) policy.Findings {
	m := &matcher{r: collector(p), p: p, serves: templateServes}
	for _, o := range offers {
		if int(o.Kind) < policy.Kinds {
			m.offers[o.Kind] = append(m.offers[o.Kind], o)
		}
	}
	for _, k := range policy.AllKinds {
		m.checkBindings(k)
		m.checkArguments(k)
		m.noteUnbound(k)
	}
	m.judgeUnknown()
	m.checkOwnName()
	return m.r.Findings()
}

// AgainstNames checks one kind against what a live upstream lists of it: which
// bindings lead nowhere, and which names are bound in no state. templateServes is
// as for Against.
func AgainstNames(p *policy.Policy, k policy.Kind, names []string, templateServes func(uri string) bool) policy.Findings {
	if int(k) >= policy.Kinds {
		return nil
	}
	m := &matcher{r: collector(p), p: p, serves: templateServes}
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
func AgainstHandles(p *policy.Policy, why map[string]string, level policy.Level) policy.Findings {
	r := collector(p)
	for _, tool := range slices.Sorted(maps.Keys(why)) {
		for _, b := range bindingsOf(p, policy.Tool, tool) {
			r.AddAbout(level, b.Place(), "no-handle", tool,
				"%s%s, the default for modern clients over HTTP: %s; choose modern=principal or modern=path",
				strictyaml.Quote(tool), outOfReach.one, why[tool])
		}
	}
	return r.Findings()
}

// checkOwnName warns of a tool that is out of reach, since the proxy's own has its name.
func (m *matcher) checkOwnName() {
	if m.p.HasSignals() && slices.Contains(m.names(policy.Tool), policy.SignalTool) {
		m.r.Add(policy.LevelWarning, policy.Place{}, "own-name", "the upstream's tool %s is out of reach: the proxy's own, by which the agent sends signals, has its name", policy.SignalTool)
	}
}

// matcher compares a policy with an upstream's lists.
type matcher struct {
	r      *strictyaml.Reader
	p      *policy.Policy
	serves func(string) bool
	offers [policy.Kinds][]Offer
}

// checkBindings looks at every pattern of the policy once, where it first stands
// with and without none.
func (m *matcher) checkBindings(k policy.Kind) {
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
	for b := range m.p.Bindings() {
		if id := (key{b.Pattern, b.None}); b.Kind == k && !seen[id] {
			seen[id] = true
			m.checkBinding(b, names, known)
		}
	}
}

func (m *matcher) checkBinding(b *policy.Binding, names []string, known map[string]bool) {
	pattern, place := b.Pattern, b.Place()
	switch {
	case b.Glob && slices.ContainsFunc(names, b.Matches):
	case b.Glob && b.None:
		m.r.Add(policy.LevelNote, place, "matches-nothing", "%s: the upstream lists no such %s, so there is nothing to unbind", strictyaml.Quote(pattern), b.Kind)
	case b.Glob:
		m.r.Add(policy.LevelWarning, place, "matches-nothing", "%s matches no %s that the upstream lists%s", strictyaml.Quote(pattern), b.Kind, offered(names))
	case known[pattern] || m.served(b):
	case b.None:
		m.r.Add(policy.LevelNote, place, "unknown-name", "%s: the upstream lists no such %s, so there is nothing to unbind%s", strictyaml.Quote(pattern), b.Kind, m.r.DidYouMean(pattern, names))
	default:
		hint := m.r.DidYouMean(pattern, names)
		if hint == "" {
			hint = offered(names)
		}
		m.r.Errorf(place, "unknown-name", "the upstream lists no %s %s%s", b.Kind, strictyaml.Quote(pattern), hint)
	}
}

func offered(names []string) string {
	if len(names) == 0 {
		return "; it lists none"
	}
	return fmt.Sprintf("; it lists %s", strictyaml.And(names))
}

// served reports whether only a template serves a bound URI.
func (m *matcher) served(b *policy.Binding) bool {
	return b.Kind == policy.Resource && m.serves != nil && m.serves(b.Pattern)
}

func (m *matcher) names(k policy.Kind) []string {
	names := make([]string, len(m.offers[k]))
	for i, o := range m.offers[k] {
		names[i] = o.Name
	}
	return names
}

func (m *matcher) noteUnbound(k policy.Kind) {
	for _, n := range m.names(k) {
		if !m.p.BoundAnywhere(k, n, true) {
			m.r.Add(policy.LevelNote, policy.Place{}, "unbound", "the upstream's %s %s is bound in no state, so it does not exist", k, strictyaml.Quote(n))
		}
	}
}

// judgeUnknown says of each tool that leads on without on_unknown whether it does
// more when it is called twice: a warning then, else a note.
func (m *matcher) judgeUnknown() {
	risky := map[*policy.Binding][]string{}
	binds := map[*policy.Binding]bool{}
	for _, o := range m.offers[policy.Tool] {
		for _, b := range bindingsOf(m.p, policy.Tool, o.Name) {
			binds[b] = true
			if !o.Idempotent && !o.ReadOnly {
				risky[b] = append(risky[b], o.Name)
			}
		}
	}
	for b := range m.p.Bindings() {
		if b.Kind != policy.Tool || unknownLeads(b) == "" {
			continue
		}
		place, pattern := b.Place(), strictyaml.Quote(b.Pattern)
		switch names := risky[b]; {
		case len(names) > 0:
			what := "it"
			if b.Glob {
				what = strictyaml.And(names)
			}
			m.r.AddAbout(policy.LevelWarning, place, noOnUnknown, b.Pattern,
				"%s%s, and the upstream does not call %s idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again)",
				pattern, lacksUnknown.one, what)
		case binds[b] || b.Glob: // a glob binds nothing but what is listed
			m.r.AddAbout(policy.LevelNote, place, noOnUnknown, b.Pattern,
				"%s%s; the upstream lists no tool under it that does more when it is called twice", pattern, lacksUnknown.one)
		}
	}
}

// bindingsOf returns the bindings, each once, under which a listed name is bound.
func bindingsOf(p *policy.Policy, k policy.Kind, name string) []*policy.Binding {
	var out []*policy.Binding
	for _, s := range p.BoundIn(k, name, true) {
		if b := p.Binding(policy.Configuration{State: s}, k, name, true); !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// WithoutLock returns a finding at the policy's pin: there is no lock to compare tools
// with. why is the whole sentence; fatal is whether the proxy does not start.
func WithoutLock(p *policy.Policy, why string, fatal bool) policy.Findings {
	r, level := collector(p), policy.LevelWarning
	if fatal {
		level = policy.LevelError
	}
	r.Add(level, p.PinPlace(), "no-lock", "%s", why)
	return r.Findings()
}

// AgainstLock returns findings on which tools that the policy binds are not what was locked. why has
// what is wrong with each tool, a sentence, and unlocked the tools that the lock does
// not have.
func AgainstLock(p *policy.Policy, why map[string]string, unlocked []string) policy.Findings {
	r, level, consequence := collector(p), policy.LevelWarning, differsFromPin.one
	if p.Pin() == policy.PinRefuse {
		level, consequence = policy.LevelError, refusedByPin.one
	}
	for _, tool := range slices.Sorted(maps.Keys(why)) {
		text := strictyaml.Quote(tool) + consequence + ": " + why[tool]
		for _, b := range bindingsOf(p, policy.Tool, tool) {
			place := b.Place()
			if slices.Contains(unlocked, tool) {
				r.AddAbout(level, place, "not-locked", tool, "%s; look at it, and then run 'fsm-proxy lock'", text)
			} else {
				r.AddAbout(level, place, "definition-changed", tool, "%s; look at what it is now, and then run 'fsm-proxy lock'", text)
			}
		}
	}
	return r.Findings()
}

// Argument is what an offered item says of one argument, as far as that is sure.
// The zero value says nothing.
type Argument struct {
	// Undeclared is whether the item declares no such argument; Refused is whether it
	// also takes no call that has it. Others are the arguments that it declares, as paths.
	Undeclared, Refused bool
	Others              []string
	// Mixed is whether it can be a boolean or a number as well as a text.
	Mixed bool
	// Closed is, for each kind of value, whether those in Only are all that the argument
	// can be.
	Closed [policy.ValueKinds]bool
	Only   []policy.Argument
}

// can reports whether the argument may be what selects a case.
func (a *Argument) can(c *policy.Case) bool {
	return !a.Closed[c.Value.Kind()] || slices.ContainsFunc(a.Only, func(v policy.Argument) bool {
		return v == c.Value || c.Glob && c.Matches(v)
	})
}

// of returns the values of a kind that the argument can be, if those are all.
func (a *Argument) of(k policy.ValueKind) (some []policy.Argument) {
	for _, v := range a.Only {
		if v.Kind() == k {
			some = append(some, v)
		}
	}
	return some
}

// usable reports whether the argument may be of some kind that the cases of a binding are.
func (a *Argument) usable(b *policy.Binding) bool {
	return slices.ContainsFunc(b.Cases, func(c policy.Case) bool {
		k := c.Value.Kind()
		return !a.Closed[k] || len(a.of(k)) > 0
	})
}

// checkArguments compares the arguments that split bindings with those that the
// items have.
func (m *matcher) checkArguments(k policy.Kind) {
	listed := map[string]int{}
	for _, o := range m.offers[k] {
		listed[o.Name]++
	}
	items := map[*policy.Binding][]Offer{}
	for _, o := range m.offers[k] {
		if listed[o.Name] > 1 {
			continue
		}
		for _, b := range bindingsOf(m.p, k, o.Name) {
			items[b] = append(items[b], o)
		}
	}
	for b := range m.p.Bindings() {
		if b.Kind == k && b.By != "" {
			m.checkArgument(b, slices.DeleteFunc(slices.Clone(items[b]), func(o Offer) bool { return o.Argument == nil }))
		}
		if b.Kind == k {
			m.checkRead(b, items[b])
		}
	}
}

// split is what the items that a binding binds say of the argument by which it is split.
type split struct {
	refusing []string // items that take no call with the argument
	lacking  []string // items that do not declare it
	useless  []string // items in which it cannot be of any kind that a case is
	choosing []string // items that list its values of some kind
	mixed    []string // items in which it may be a string, and a boolean or a number
	others   []string // the arguments that refusing and lacking declare
	values   []string // the values that choosing list
	never    []int    // by case, how many of choosing it cannot be in
}

// splitBy sorts items by what they say of the argument of a split binding.
func splitBy(b *policy.Binding, items []Offer) split {
	s := split{never: make([]int, len(b.Cases))}
	for _, o := range items {
		a := o.Argument(b.Path)
		if a.Mixed && !slices.ContainsFunc(b.Cases, isLiteral) {
			s.mixed = append(s.mixed, o.Name)
		}
		switch {
		case a.Refused:
			s.refusing, s.others = append(s.refusing, o.Name), append(s.others, a.Others...)
		case a.Undeclared:
			s.lacking, s.others = append(s.lacking, o.Name), append(s.others, a.Others...)
		case !a.usable(b):
			s.useless = append(s.useless, o.Name)
		case a.Closed != [policy.ValueKinds]bool{}:
			s.choosing = append(s.choosing, o.Name)
			for _, v := range a.Only {
				s.values = append(s.values, v.String())
			}
			for i := range b.Cases {
				if !a.can(&b.Cases[i]) {
					s.never[i]++
				}
			}
		}
	}
	return s
}

// isLiteral reports whether a case is a number or a boolean.
func isLiteral(c policy.Case) bool { return c.Value.Kind() != policy.TextValue }

// checkArgument says which of the items that a binding binds lack its argument, and
// which cases none of them can be. What a glob's other items take is no error.
func (m *matcher) checkArgument(b *policy.Binding, items []Offer) {
	s, level, by := splitBy(b, items), policy.LevelWarning, strictyaml.Quote(b.By)
	useless := len(s.refusing) + len(s.useless)
	if useless == len(items) {
		level = policy.LevelError
	}
	if len(s.refusing) > 0 {
		m.r.Add(level, b.ByPlace, "unknown-argument", "by: no argument %s is taken by %s, so no call can be both allowed and valid%s",
			by, upstreams(b.Kind, s.refusing), m.suggest(b.By, s.others))
	}
	if len(s.lacking) > 0 {
		m.r.Add(policy.LevelWarning, b.ByPlace, "unknown-argument", "by: no argument %s is declared by %s, and a call without it is refused%s",
			by, upstreams(b.Kind, s.lacking), m.suggest(b.By, s.others))
	}
	if len(s.useless) > 0 {
		is, hint := "is no text", "name an argument that is a string"
		if slices.ContainsFunc(b.Cases, isLiteral) {
			is, hint = "is of no kind that a case is", "a number and a boolean stand without quotes, a text with them"
		}
		m.r.Add(level, b.ByPlace, "unknown-argument", "by: argument %s %s in %s, so no call can be both allowed and valid; %s",
			by, is, upstreams(b.Kind, s.useless), hint)
	}
	if len(s.mixed) > 0 {
		m.r.Add(policy.LevelWarning, b.ByPlace, "unknown-argument", "by: argument %s may be a boolean or a number in %s; no case is that, so such a call is refused",
			by, upstreams(b.Kind, s.mixed))
	}
	for i := range b.Cases {
		c, level := &b.Cases[i], policy.LevelError
		if c.None { // there is nothing to refuse
			level = policy.LevelNote
		}
		if s.never[i] > 0 && s.never[i]+useless == len(items) {
			m.r.Add(level, c.Place, "unknown-case", "argument %s cannot be %s in %s%s", by, quoted(c), upstreams(b.Kind, s.choosing), m.suggest(c.Name, s.values))
		}
	}
}

// upstreams names items that the upstream lists.
func upstreams(k policy.Kind, names []string) string {
	if len(names) == 1 {
		return "the upstream's " + k.String() + " " + strictyaml.Quote(names[0])
	}
	return "the upstream's " + k.Plural() + " " + strictyaml.And(names)
}

// suggest returns a hint at what was perhaps meant, else at all there is.
func (m *matcher) suggest(text string, there []string) string {
	slices.Sort(there)
	there = slices.Compact(there)
	if hint := m.r.DidYouMean(text, there); hint != "" || len(there) == 0 {
		return hint
	}
	return "; there is " + strictyaml.And(there)
}
