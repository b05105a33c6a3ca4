package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

// maxGlobs is how many globs one place may bind of one kind: they are tried one
// after the other.
const maxGlobs = 256

// maxGlob is how long a glob may be, in bytes.
const maxGlob = 4096

// maxInherited is how many bindings the states may have of everywhere, all
// together.
const maxInherited = 200_000

// compiler turns what a file says into an edge table.
type compiler struct {
	r      *strictyaml.Reader
	f      *syntax.File
	p      *Policy
	names  []string // of states
	guards *guard.Env
	// compiled has each expression once, by what it is for and its text.
	compiled map[string]compiledExpression
	returns  bool     // some edge returns
	targets  []string // what may stand for a target
	short    []string // and for a value that is a target alone
}

// compiledExpression is what came of an expression.
type compiledExpression struct {
	program  *guard.Program
	problems []guard.Problem
}

// compile returns the edge table, nil where there are errors beside overlaps.
func compile(r *strictyaml.Reader, f *syntax.File) *Policy {
	p := &Policy{settings: f.Settings, file: r.File(), byName: map[string]State{}, renames: map[string]State{}}
	c := &compiler{r: r, f: f, p: p, compiled: map[string]compiledExpression{}}
	c.enterStates()
	c.enterParts()
	c.enterInitial()
	c.enterRenames()
	c.enterRegisters()
	p.limits = c.limits("", &f.AtMost)
	c.enterVisits()
	c.checkExits()
	for _, k := range AllKinds {
		p.everywhere[k] = c.layer(Everywhere, k, f.Everywhere.Kinds[k])
	}
	p.everywhere[Signal] = c.layer(Everywhere, Signal, f.Everywhere.Signals)
	for i := range f.States {
		for _, k := range AllKinds {
			p.states[i].own[k] = c.layer(State(i), k, f.States[i].Kinds[k])
		}
		p.states[i].own[Signal] = c.layer(State(i), Signal, f.States[i].Signals)
	}
	c.checkTerminalStates()
	c.checkOwnName()
	c.checkSize()
	if c.returns && r.OK() {
		c.enterReturns()
	}
	if !r.OK() {
		return nil
	}
	for _, k := range AllKinds {
		p.enterClasses(k)
	}
	c.enterFollowed()
	for _, k := range SymbolKinds {
		p.enterExact(k)
	}
	p.enterMachines()
	c.checkOverlaps()
	return p
}

// checkSize bounds the edge table, which has what everywhere binds once for each
// state that takes it.
func (c *compiler) checkSize() {
	inherited, takers := 0, 0
	for _, l := range c.p.everywhere {
		inherited += len(l.order)
	}
	for i := range c.p.states {
		if c.p.states[i].Inherits {
			takers++
		}
	}
	if inherited*takers > maxInherited {
		c.r.Errorf(Place{Line: 1, Column: 1}, "too-large", "everywhere binds %d names in %d states; at most %d in all: bind them where they are needed", inherited, takers, maxInherited)
	}
}

func (c *compiler) enterStates() {
	for i, st := range c.f.States {
		c.p.byName[st.Name.Value] = State(i)
		c.names = append(c.names, st.Name.Value)
		c.p.states = append(c.p.states, stateEntry{StateInfo: StateInfo{
			Name: st.Name.Value, Description: st.Description, Terminal: st.Terminal, Inherits: !st.Without && !st.Terminal, Place: st.Place, Part: st.Within,
		}})
	}
	c.short = append(slices.Clone(c.names), "stay", "none")
	c.targets = c.short[:len(c.names)+1]
}

// enterVisits enters what holds for visits of states: their limits, their clocks, and what the
// upstream may ask.
func (c *compiler) enterVisits() {
	for i := range c.f.States {
		c.p.states[i].limits = c.limits(c.f.States[i].Name.Value, &c.f.States[i].AtMost)
		c.p.states[i].audience = c.audience(c.f.States[i].For)
		c.enterClock(State(i), &c.f.States[i].After)
		c.p.states[i].may = c.asking(&c.f.States[i])
	}
}

// asking is what a state lets the upstream ask: all, where it does not say.
func (c *compiler) asking(st *syntax.State) UpstreamMay {
	if !st.Asking.Given {
		return UpstreamMay{true, true, true}
	}
	var own [len(syntax.Asks)]bool
	for _, t := range st.Asking.Words {
		if !c.p.UpstreamMay().Permits(t.Value) {
			c.r.Errorf(t.Place, "upstream-may", "upstream_may: the policy's own does not have %s, and a state can only take from it; remove it here, or add it at the top of the policy", strictyaml.Quote(t.Value))
		}
		own[slices.Index(syntax.Asks[:], t.Value)] = true
	}
	return upstreamMay(own)
}

func (c *compiler) enterInitial() {
	t := c.f.Initial
	if !t.Given {
		return
	}
	i, ok := c.state(t, "initial", c.names)
	if ok && c.p.states[i].Terminal {
		c.r.Errorf(t.Place, "initial", "initial: %s is terminal, so a run would end before it begins; name another state", strictyaml.Quote(t.Value))
	}
	c.p.initial = i
}

func (c *compiler) enterRenames() {
	for _, x := range c.f.Renamed {
		if _, still := c.p.byName[x.Old.Value]; still {
			c.r.Errorf(x.Old.Place, "renamed", "renamed: %s is still a state; \"renamed\" maps states that are gone to those that took their place", strictyaml.Quote(x.Old.Value))
		}
		if s, ok := c.state(x.New, "renamed", c.names); ok {
			c.p.renamed = append(c.p.renamed, Rename{x.Old.Value, x.New.Value})
			c.p.renames[x.Old.Value] = s
		}
	}
}

// checkExits checks where the exits of part states lead, while those are states like others.
func (c *compiler) checkExits() {
	for _, st := range c.f.States {
		for _, x := range st.Exits {
			if x.To.To.Given {
				c.state(x.To.To, "exits", c.targets)
			}
		}
	}
}

// state finds the state that a text names, and reports it if there is none.
func (c *compiler) state(t syntax.Text, what string, candidates []string) (State, bool) {
	if i, ok := c.p.byName[t.Value]; ok {
		return i, true
	}
	if !c.f.HasStates {
		return 0, false
	}
	hint := c.r.DidYouMean(t.Value, candidates)
	switch {
	case t.Value == "none" && what != "initial":
		hint = "; none unbinds a name and is no target: write stay, or leave the edge out"
	case hint == "" && len(c.names) > 0:
		hint = "; the states are " + strictyaml.Listed(c.names)
	}
	c.r.Errorf(t.Place, "unknown-target", "%s: %s is no state%s", what, strictyaml.Quote(t.Value), hint)
	return 0, false
}

// layer compiles what one place binds of one kind.
func (c *compiler) layer(home State, k Kind, entries []syntax.Entry) layer {
	l := layer{exact: map[string]*Binding{}, byGlob: map[string]*Binding{}}
	for i := range entries {
		b := c.binding(home, k, &entries[i])
		l.order = append(l.order, b)
		if b.Glob {
			l.globs = append(l.globs, b)
			l.byGlob[b.Pattern] = b
		} else {
			l.exact[b.Pattern] = b
		}
	}
	if n := len(l.globs); n > maxGlobs {
		c.r.Errorf(entries[0].Name.Place, "glob", "%d globs over %s in one place; at most %d: join some, or name what they match", n, k.Plural(), maxGlobs)
		l.globs = nil
	}
	slices.SortStableFunc(l.globs, func(a, b *Binding) int { return compareGlobs(a.Pattern, b.Pattern) })
	return l
}

func (c *compiler) binding(home State, k Kind, e *syntax.Entry) *Binding {
	t, v := e.Name, &e.Value
	c.checkJoined(t)
	c.checkGlob(t)
	b := &Binding{
		Rule: Rule{File: cmp.Or(t.File, c.r.File()), Line: t.Line, Column: t.Column, Pattern: t.Value},
		Home: home, Kind: k, Glob: IsGlob(t.Value), None: v.None, By: v.By.Value, ByPlace: v.By.Place, Shared: v.Shared,
		From: Sender(v.From.Index), Says: v.Description,
	}
	switch {
	case b.None:
	case b.By == "":
		b.Cases = []Case{c.compileCase(b, "", v, conditions{})}
	default:
		c.enterCases(b, v)
	}
	enterChanges(b)
	return b
}

// enterCases compiles the cases of a split binding.
func (c *compiler) enterCases(b *Binding, v *syntax.Value) {
	b.Path, b.Cases = strings.Split(b.By, "."), make([]Case, len(v.Cases))
	b.named, b.texts, b.literals = make(map[string]*Case, len(v.Cases)), make(map[string]*Case, len(v.Cases)), map[string]*Case{}
	around := c.around(b, v)
	for i := range v.Cases {
		x := &v.Cases[i]
		value := Text(x.Name.Value)
		if literal := Literal(strings.ToLower(x.Name.Value)); x.Name.Resolved && literal.kind != NoValue {
			value = literal
		}
		name := caseName(x.Name.Value, value)
		b.Cases[i] = c.compileCase(b, name, &x.Value, around)
		added := &b.Cases[i]
		added.Value, added.Place, added.None = value, x.Name.Place, x.Value.None
		added.Doubtful = x.Name.Resolved && value.kind == TextValue
		added.Glob = value.kind == TextValue && IsGlob(value.text)
		for i := range added.Alternatives {
			a := &added.Alternatives[i]
			a.Exclusive, a.Irreversible, a.Timeout = a.Exclusive || v.Exclusive, a.Irreversible || v.Irreversible, shorter(a.Timeout, v.Timeout)
		}
		if before := b.Like(added); before != nil {
			c.r.Errorf(added.Place, "duplicate-key", "%s stands here a second time (first on line %d, as %s); keep one", name, before.Place.Line, before.Name)
			continue
		}
		b.named[name] = added
		switch {
		case added.Glob:
			c.checkGlob(x.Name)
			b.globs = append(b.globs, added)
		case value.kind == TextValue:
			b.texts[value.text] = added
		default:
			b.literals[value.text] = added
		}
	}
	if n := len(b.globs); n > maxGlobs {
		c.r.Errorf(v.Cases[0].Name.Place, "glob", "%d globs among the cases of %s; at most %d: join some, or name what they match", n, strictyaml.Quote(b.Pattern), maxGlobs)
		b.globs = nil
	}
	slices.SortStableFunc(b.globs, func(x, y *Case) int { return compareGlobs(x.Value.text, y.Value.text) })
}

// checkGlob bounds the length of a glob.
func (c *compiler) checkGlob(t syntax.Text) {
	if len(t.Value) > maxGlob && IsGlob(t.Value) {
		c.r.Errorf(t.Place, "glob", "a glob of %d bytes; at most %d", len(t.Value), maxGlob)
	}
}

// checkJoined reports NAME:STATE, which YAML reads as one word.
func (c *compiler) checkJoined(t syntax.Text) {
	for i := len(t.Value) - 1; t.Joined && i > 0; i-- {
		if t.Value[i] != ':' {
			continue
		}
		rest := t.Value[i+1:]
		if _, state := c.p.byName[rest]; state || rest == "stay" || rest == "none" {
			c.r.Errorf(t.Place, "colon", "%s is one word in YAML; put a space after the colon: %s: %s (or quote it, if the name is such)", strictyaml.Quote(t.Value), t.Value[:i], rest)
		}
		return
	}
}

// compileCase compiles what is said of one value. around is what stands beside by.
func (c *compiler) compileCase(b *Binding, name string, v *syntax.Value, around conditions) Case {
	return Case{Name: name, Bare: v.Bare, Alternatives: c.alternatives(b, name, v, around)}
}

// target is a target in the table; one that is no state stays, and was reported.
func (c *compiler) target(t syntax.Target) Target {
	if t.Return {
		c.returns = true
		return Target{State: Origin, Of: c.unit(t.Unit)}
	}
	out := Target{State: Everywhere, Terminal: t.Terminal}
	if i, ok := c.p.byName[t.To.Value]; ok && t.To.Given {
		out.State = i
		out.Terminal = t.Terminal || c.p.states[i].Terminal
	}
	return out
}

// SignalTool is the tool by which the agent sends signals. It is the proxy's own.
const SignalTool = "fsm_signal"

// checkOwnName reports bindings of the tool by which signals are sent, in a policy that
// has some for the agent. A glob never reaches it.
func (c *compiler) checkOwnName() {
	var bound []*Binding
	sends := false
	for b := range c.p.Bindings() {
		sends = sends || b.Kind == Signal && b.offered()
		if b.Kind == Tool && b.Pattern == SignalTool && !b.None {
			bound = append(bound, b)
		}
	}
	if !sends {
		return
	}
	for _, b := range bound {
		c.r.Errorf(b.Place(), "own-name", "%s is the proxy's own tool, by which the agent sends the policy's signals, and no server's is reached under that name: remove it", SignalTool)
	}
}

func (c *compiler) checkTerminalStates() {
	for i := range c.p.states {
		st := &c.p.states[i]
		for _, l := range st.own {
			if st.Terminal && len(l.order) > 0 {
				b := l.order[0]
				c.r.Errorf(b.Place(), "terminal-binds", "state %s is terminal and binds %s; no run rests there: remove it, or the state's \"terminal\"", strictyaml.Quote(st.Name), strictyaml.Quote(b.Pattern))
			}
		}
	}
}
