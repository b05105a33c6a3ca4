package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

// Assignment is what becomes of one register.
type Assignment struct {
	Register Register
	register.Operation
	Values []*guard.Program
	Late   bool // one of them reads the result: it is worked out when the call has ended
	Place  Place
}

// SetsFrom returns where a register is first set from what stands at a place in the arguments of calls, or around it. The
// place is named by the tokens of a JSON pointer; ok is false where none is.
func (p *Policy) SetsFrom(tokens []string) (at Place, ok bool) {
	for b := range p.Bindings() {
		for a := range b.Alternatives() {
			for _, o := range a.AllOutcomes() {
				for _, x := range a.Sets(o) {
					if slices.ContainsFunc(x.Values, func(v *guard.Program) bool { return v.ReadsArgument(tokens) }) {
						return x.Place, true
					}
				}
			}
		}
	}
	return at, false
}

// Register is a value that runs remember beside their state.
type Register struct {
	register.Declaration
	Place Place
}

// Registers returns the registers in the file's order. The slice is the policy's.
func (p *Policy) Registers() []Register { return p.registers }

// Schema returns the registers as runs have them, nil if there are none.
func (p *Policy) Schema() *register.Schema { return p.schema }

// maxRegisters is how many registers a policy may have.
const maxRegisters = 256

// enterRegisters declares the registers.
func (c *compiler) enterRegisters() {
	kinds := map[string]guard.Kind{}
	var declarations []register.Declaration
	for _, x := range c.f.Registers {
		kind := guard.Kind(x.Type.Index) // in the same order
		declared := register.Declaration{Name: x.Name.Value, Kind: kind, Max: x.Max}
		declarations = append(declarations, declared)
		c.p.registers = append(c.p.registers, Register{declared, x.Name.Place})
		kinds[x.Name.Value] = kind
	}
	c.p.schema = register.NewSchema(declarations)
	if len(c.f.Registers) > maxRegisters {
		c.r.Errorf(c.f.Registers[maxRegisters].Name.Place, "register", "%d registers; at most %d", len(c.f.Registers), maxRegisters)
	}
	c.guards = guard.New(kinds)
}

// conditions are what stands beside by, and holds for every case.
type conditions struct {
	audience []Audience
	guards   []Guard
	limits   Limits
	because  []string
	approve  *Approve
}

// around compiles what stands beside by.
func (c *compiler) around(b *Binding, v *syntax.Value) conditions {
	return conditions{c.audience(v.For), c.guardsOf(b, &v.Conditions), c.limits(b.key(c.p), &v.AtMost), because(v), c.approve(&v.Approve)}
}

// because is what a value has to tell of its conditions.
func because(v *syntax.Value) []string {
	if !v.Because.Given {
		return nil
	}
	return []string{v.Because.Value}
}

// alternatives compiles what is said of one case: its one alternative, or those of its list.
func (c *compiler) alternatives(b *Binding, name string, v *syntax.Value, around conditions) []Alternative {
	if v.Alternatives == nil {
		return []Alternative{c.alternative(b, name, 0, v, around)}
	}
	out := make([]Alternative, len(v.Alternatives))
	for i := range v.Alternatives {
		out[i] = c.alternative(b, name, i, &v.Alternatives[i], around)
	}
	return out
}

// shorter is the shorter of two times of which 0 is none.
func shorter(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// alternative compiles one alternative.
func (c *compiler) alternative(b *Binding, name string, i int, v *syntax.Value, around conditions) Alternative {
	own := c.limits(fmt.Sprintf("%s\x00%s\x00%d", b.key(c.p), name, i), &v.AtMost)
	a := Alternative{
		Place: v.Place, Exclusive: v.Exclusive, Irreversible: v.Irreversible, Timeout: v.Timeout, Guards: append(slices.Clip(around.guards), c.guardsOf(b, &v.Conditions)...),
		Limits:  Limits{append(slices.Clip(around.limits.Own), own.Own...), append(slices.Clip(around.limits.Principal), own.Principal...)},
		Because: append(slices.Clip(around.because), because(v)...),
		For:     append(slices.Clip(around.audience), c.audience(v.For)...),
		Approve: cmp.Or(c.approve(&v.Approve), around.approve),
	}
	c.checkEdges(v)
	words := make([]string, 0, len(v.Outcomes))
	for _, x := range v.Outcomes {
		words = append(words, x.Name.Value)
		if program := c.expression(x.Expression, "outcomes", c.guards.Outcome); program != nil {
			a.Outcomes = append(a.Outcomes, NamedOutcome{program, x.Name.Value, x.Name.Place})
		}
	}
	if len(words) > maxOutcomes {
		c.r.Errorf(v.Outcomes[maxOutcomes].Name.Place, "outcome", "%d outcomes; at most %d", len(words), maxOutcomes)
	}
	set := c.assignments(b, v.Set)
	for o, word := range append(slices.Clone(syntax.Outcomes[:]), words...) {
		t, given := v.NamedEdge(word)
		if o < len(AllOutcomes) {
			t, given = v.Edge(o)
		}
		e := edge{Target: c.target(t), given: given, place: t.At, exits: t.Exits, event: c.event(b, name, i, word), set: c.assignments(b, t.Set)}
		if Success.Index() == o {
			c.checkSetOnce(set, e.set)
			e.set = append(slices.Clone(set), e.set...)
		}
		a.edges = append(a.edges, e)
	}
	for _, x := range v.Named {
		if !slices.Contains(words, x.Name.Value) {
			c.r.Errorf(x.Name.Place, "outcome", "on_%s: there is no outcome of that name here%s", x.Name.Value,
				c.r.DidYouMean("on_"+x.Name.Value, append(slices.Clone(syntax.EdgeKeys[:]), prefixed("on_", words)...)))
		}
	}
	return a
}

// checkSetOnce reports a register that is set beside the edges, and by the edge that a success takes.
func (c *compiler) checkSetOnce(beside, own []Assignment) {
	for _, x := range own {
		if slices.ContainsFunc(beside, func(b Assignment) bool { return b.Register.Name == x.Register.Name }) {
			c.r.Errorf(x.Place, "register", "set: a success sets %s here and beside the edges; one edge changes a register once: keep one of them", strictyaml.Quote(x.Register.Name))
		}
	}
}

func prefixed(prefix string, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = prefix + w
	}
	return out
}

// checkEdges reports targets that are no states.
func (c *compiler) checkEdges(v *syntax.Value) {
	if _, ok := c.p.byName[v.Null.Value]; ok && v.Null.Given {
		c.r.Errorf(v.Null.Place, "null", "%s means nothing here, so the name would stay; quote it to mean the state: \"%s\"", v.Null.Value, v.Null.Value)
	}
	for i, e := range v.Edges {
		switch {
		case !e.To.Given:
		case v.Short:
			c.state(e.To, "target", c.short)
		default:
			c.state(e.To, syntax.EdgeKeys[i], c.targets)
		}
	}
	for _, x := range v.Named {
		if x.To.Given {
			c.state(x.To, "on_"+x.Name.Value, c.targets)
		}
	}
}

// guardsOf compiles the guard of some conditions, if there is one.
func (c *compiler) guardsOf(b *Binding, x *syntax.Conditions) []Guard {
	if x.Because.Given && !x.When.Given && !x.AtMost.Given() {
		c.r.Errorf(x.Because.Place, "because", "because: there is no condition here that it could tell of; write \"when\", or remove it")
	}
	if !x.When.Given {
		return nil
	}
	program := c.expression(x.When, "when", c.guards.Guard)
	if program == nil {
		return nil
	}
	reads := program.Reads()
	if len(reads.Args) > 0 && (b.Kind == Resource || b.Kind == Signal) {
		c.r.Errorf(x.When.Place, "guard", "when: a %s has no arguments; remove %s", b.Kind, strictyaml.Quote(reads.Args[0]))
	}
	who, _ := program.Conjuncts()
	c.p.asksWho = c.p.asksWho || who != nil
	return []Guard{{program, x.When.Place, reads.Run || len(reads.Registers) > 0, who, c.follow(program)}}
}

// After is the clock of a state: its one edge is taken by itself.
type After struct {
	Seconds int // since the state was entered; 0: there is none
	Rule    Rule
	edge
}

// Leads returns where the clock leads.
func (a *After) Leads() Target { return a.Target }

// Sets returns what goes with it.
func (a *After) Sets() []Assignment { return a.set }

// After returns the clock of a state, nil if it has none.
func (p *Policy) After(s State) *After {
	if !p.has(s) || p.states[s].after.Seconds == 0 {
		return nil
	}
	return &p.states[s].after
}

// enterClock compiles the clock of a state.
func (c *compiler) enterClock(s State, x *syntax.After) {
	if x.Seconds == 0 {
		return
	}
	if x.To.Given {
		c.state(x.To, "after", c.targets)
	}
	clock := &Binding{Kind: Signal, Home: s} // which has no arguments and no result either
	rule := Rule{File: c.r.File(), Line: x.Line, Column: x.Column, Pattern: "after"}
	if x.File != "" {
		rule.File = x.File
	}
	after := After{x.Seconds, rule, edge{Target: c.target(x.Target), given: true, place: x.At, event: fmt.Sprintf("after %d", s), set: c.assignments(clock, x.Set)}}
	switch {
	case c.p.states[s].Terminal:
		c.r.Errorf(x.Place, "terminal-binds", "state %s is terminal and has a clock; no run rests there: remove it, or the state's \"terminal\"", strictyaml.Quote(c.p.StateName(s)))
	case !after.Changes(s):
		c.r.Errorf(x.Place, "after", "after: it leads nowhere; name another state, or make the edge terminal")
	}
	c.p.states[s].after, c.p.guarded = after, true
}

// key is the name of a binding's place, which it has in the next version of the file as well:
// it begins with the state's name, which may be another there.
func (b *Binding) key(p *Policy) string {
	return cmp.Or(b.Shared, p.StateName(b.Home)) + "\x00" + b.Kind.String() + "\x00" + b.Pattern
}

// limits compiles limits of the place of a key.
func (c *compiler) limits(key string, x *syntax.AtMost) (out Limits) {
	if !x.Given() {
		return out
	}
	if c.p.limited == nil {
		c.p.limited = map[string]Place{}
	}
	c.p.guarded, c.p.limited[key] = true, x.Place
	for i := range syntax.Spans {
		span := limit.Span(i) // in the same order
		if n := x.Own[i]; n > 0 {
			out.Own = append(out.Own, limit.Limit{Key: key, Span: span, Most: n})
		}
		if n := x.Principal[i]; n > 0 {
			out.Principal = append(out.Principal, limit.Limit{Key: key, Span: span, Most: n})
		}
	}
	return out
}

// LimitsOf returns the limits of a call that is allowed in a state: of the state, of the run,
// and its own. Signals are no calls.
func (p *Policy) LimitsOf(s State, v *Verdict) Limits {
	out := v.Alternative.Limits
	if v.Symbol.Kind == Signal || p.limits.none() && p.states[s].limits.none() {
		return out
	}
	of := &p.states[s].limits
	return Limits{slices.Concat(out.Own, of.Own, p.limits.Own), slices.Concat(out.Principal, of.Principal, p.limits.Principal)}
}

// LimitsIn returns the limits that hold for all calls in a state, those of Everywhere for all
// of a run.
func (p *Policy) LimitsIn(s State) Limits {
	if s == Everywhere {
		return p.limits
	}
	return p.states[s].limits
}

// LimitKey returns the key that a limit of a policy before this one has here; ok is false if
// there is no such place any more.
func (p *Policy) LimitKey(was string) (key string, ok bool) {
	home, rest, found := strings.Cut(was, "\x00")
	place := func(home string) string {
		if found {
			return home + "\x00" + rest
		}
		return home
	}
	part := strings.TrimSuffix(home, "/") // as Binding.Shared has it
	if heir, renamed := p.parts.renames[part]; renamed {
		key := place(heir + home[len(part):])
		if _, ok = p.limited[key]; ok {
			return key, true
		}
	}
	if s, renamed := p.renames[home]; renamed {
		home = p.StateName(s)
	}
	key = place(home)
	_, ok = p.limited[key]
	return key, ok
}

// LimitPlace returns where the limits of a key stand.
func (p *Policy) LimitPlace(key string) Place { return p.limited[key] }

// follow enters what lists follow of a guard, and returns its place: each text once.
func (c *compiler) follow(program *guard.Program) int {
	_, run := program.Conjuncts()
	if run == nil {
		return -1
	}
	i := slices.IndexFunc(c.p.followed, func(other *guard.Program) bool { return other.String() == run.String() })
	if i < 0 {
		i, c.p.followed = len(c.p.followed), append(c.p.followed, run)
	}
	return i
}

// enterFollowed notes for each state what lists follow there.
func (c *compiler) enterFollowed() {
	for s := range c.p.states {
		seen := make([]bool, len(c.p.followed))
		for b := range c.p.Effective(State(s)) {
			for a := range b.Alternatives() {
				for _, g := range a.Guards {
					if g.followed >= 0 && !seen[g.followed] {
						seen[g.followed] = true
						c.p.states[s].follows = append(c.p.states[s].follows, g.followed)
					}
				}
			}
		}
	}
}

// audience compiles whom something is for, if that is said.
func (c *compiler) audience(t syntax.Text) []Audience {
	program := c.expression(t, "for", c.guards.Guard)
	if program == nil {
		return nil
	}
	c.p.asksWho = true
	return []Audience{{program, t.Place}}
}

// expression compiles an expression, and reports what is wrong with it or doubtful.
func (c *compiler) expression(t syntax.Text, what string, compile func(string) (*guard.Program, []guard.Problem)) *guard.Program {
	if !t.Given {
		return nil
	}
	is := what + "\x00" + t.Value
	known, compiled := c.compiled[is]
	if !compiled { // a part's states have what their part binds in each of them
		known.program, known.problems = compile(t.Value)
		c.compiled[is] = known
	}
	program := known.program
	for _, x := range known.problems {
		at := c.r.Within(t.Place, t.Value, x.Offset)
		switch x.Warning {
		case "":
			c.r.Errorf(at, "guard", "%s: %s", what, x.Message)
		case guard.Constant:
			c.r.Add(LevelWarning, at, "constant-guard", "%s: %s", what, x.Message)
		case guard.Negation:
			c.r.Add(LevelWarning, at, "guard-negation", "%s: %s", what, x.Message)
		case guard.All:
			c.r.Add(LevelWarning, at, "guard-all", "%s: %s", what, x.Message)
		}
	}
	c.p.guarded = c.p.guarded || program != nil
	return program
}

// assignments compiles what is done to registers.
func (c *compiler) assignments(b *Binding, set []syntax.Assignment) (out []Assignment) {
	for i := range set {
		if a, ok := c.assignment(b, &set[i]); ok {
			out = append(out, a)
		}
	}
	return out
}

func (c *compiler) assignment(b *Binding, x *syntax.Assignment) (a Assignment, ok bool) {
	i := slices.IndexFunc(c.p.registers, func(r Register) bool { return r.Name == x.Register.Value })
	if i < 0 {
		hint := c.r.DidYouMean(x.Register.Value, c.registerNames())
		if hint == "" {
			hint = "; declare it under \"registers\""
		}
		c.r.Errorf(x.Register.Place, "register", "set: %s is no register%s", strictyaml.Quote(x.Register.Value), hint)
		return a, false
	}
	a = Assignment{Register: c.p.registers[i], Operation: register.Operation(x.Operation), // in the same order
		Place: x.Register.Place}
	kind := a.Register.Kind
	switch {
	case a.Operation == register.Assign && kind == guard.TextSet:
		c.r.Errorf(a.Place, "register", "set: %s is a set; write {add: …}, {remove: …} or none", strictyaml.Quote(a.Register.Name))
		return a, false
	case a.Operation == register.Add && kind != guard.TextSet && kind != guard.Counter, a.Operation == register.Remove && kind != guard.TextSet:
		c.r.Errorf(a.Place, "register", "set: %s is a %s; write the new value, or none", strictyaml.Quote(a.Register.Name), kind)
		return a, false
	}
	c.p.guarded = true
	for _, t := range x.Values {
		what := "set: " + a.Register.Name
		program := c.expression(t, what, func(text string) (*guard.Program, []guard.Problem) { return c.guards.Value(text, kind) })
		if program == nil {
			continue
		}
		reads := program.Reads()
		switch {
		case len(reads.Args) > 0 && (b.Kind == Resource || b.Kind == Signal):
			c.r.Errorf(t.Place, "guard", "%s: a %s has no arguments; remove %s", what, b.Kind, strictyaml.Quote(reads.Args[0]))
		case len(reads.Result) > 0 && b.Kind == Signal:
			c.r.Errorf(t.Place, "guard", "%s: a signal has no result; remove %s", what, strictyaml.Quote(reads.Result[0]))
		}
		a.Values, a.Late = append(a.Values, program), a.Late || len(reads.Result) > 0
	}
	return a, len(a.Values) == len(x.Values)
}

func (c *compiler) registerNames() []string {
	names := make([]string, len(c.p.registers))
	for i, r := range c.p.registers {
		names[i] = r.Name
	}
	return names
}

// enterChanges says which alternatives of a binding take the turn for what they set, all that
// do more than add, and all whose guards read what the binding sets; and which need the result.
func enterChanges(b *Binding) {
	sets := map[string]bool{}
	for a := range b.Alternatives() {
		a.late = len(a.Outcomes) > 0
		for _, x := range a.Outcomes {
			a.registers = a.registers || len(x.Reads().Registers) > 0
		}
		for _, e := range a.edges {
			for _, x := range e.set {
				a.registers = a.registers || x.Late && slices.ContainsFunc(x.Values, func(p *guard.Program) bool { return len(p.Reads().Registers) > 0 })
				sets[x.Register.Name], a.sets = true, true
				a.changes, a.late = a.changes || x.Operation != register.Add, a.late || x.Late
			}
		}
	}
	for a := range b.Alternatives() {
		for _, g := range a.Guards {
			a.changes = a.changes || slices.ContainsFunc(g.Reads().Registers, func(name string) bool { return sets[name] })
		}
	}
}

// LateByCall reports whether what hangs on the result hangs on something else as well that is known while the call is
// under way: its arguments, registers, where the run stood, who asked, or when.
func (a *Alternative) LateByCall() bool {
	byCall := func(p *guard.Program) bool {
		r := p.Reads()
		return len(r.Args)+len(r.Registers) > 0 || r.Run || r.Who || r.Now
	}
	return slices.ContainsFunc(a.Outcomes, func(x NamedOutcome) bool { return byCall(x.Program) }) ||
		slices.ContainsFunc(a.edges, func(e edge) bool {
			return slices.ContainsFunc(e.set, func(x Assignment) bool { return x.Late && slices.ContainsFunc(x.Values, byCall) })
		})
}

// event is the name of an edge on the machines.
func (c *compiler) event(b *Binding, name string, alternative int, outcome string) string {
	return fmt.Sprintf("%s %q %q %d %s", b.Kind, b.Pattern, name, alternative, outcome)
}
