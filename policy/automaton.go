package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/looplab/fsm"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// Verdict is the answer to one request, with its reason. The zero value denies.
type Verdict struct {
	// Allowed is whether the request may go upstream.
	Allowed bool
	// Bound is whether a binding applies to the name, whatever it says of its case.
	Bound bool
	// ByGlob is whether a glob decided, allowed or not. A glob binds only what
	// the upstream lists: a caller that did not know must look, and ask again
	// with listed false if the name is not there.
	ByGlob bool
	// Turn is whether the call takes the run's turn: an edge of what was asked
	// for changes the configuration, or a register otherwise than by adding to it, the
	// binding is exclusive, or it is a signal.
	Turn bool
	// Unclear is whether a guard reads an argument that reads differently to others.
	Unclear bool
	// Code says why not. It is CodeNone if, and only if, Allowed.
	Code Code
	// Rule is the binding that decided, the zero Rule where none did.
	Rule Rule
	// Symbol is what to give to Next once the outcome is known.
	Symbol Symbol
	// Alternative is the way for the call to go, nil where it is not allowed.
	Alternative *Alternative
	// Unmet is what is to be told of conditions that do not hold, nil for nothing.
	Unmet *Unmet
}

// Unmet is what is to be told of conditions that do not hold.
type Unmet struct {
	Because []string // what the file has to tell of them
	Fault   error    // why a guard could not be evaluated, for operators alone
}

// Because is what the file has to tell of conditions that do not hold.
func (v *Verdict) Because() []string {
	if v.Unmet == nil {
		return nil
	}
	return v.Unmet.Because
}

// Fault is why a guard could not be evaluated, for operators alone; nil: each could.
func (v *Verdict) Fault() error {
	if v.Unmet == nil {
		return nil
	}
	return v.Unmet.Fault
}

// Settles reports whether what becomes of the call is to be told to its run.
func (v *Verdict) Settles() bool { return v.Turn || v.Alternative != nil && v.Alternative.Settles() }

// Request is what a decision is asked for.
type Request struct {
	Kind Kind
	Name string
	// Who is on whose behalf it comes, nil where nobody is known.
	Who *guard.Who
	// From is who sends a signal.
	From Sender
	// Listed is whether the upstream lists the name.
	Listed bool
	// Args has the argument that splits a binding. It is asked at most once, only for a
	// binding with by, and may be nil.
	Args Arguments
	// Facts are what guards see. They may be nil, and then no guard holds.
	Facts *guard.Call
}

// Decide says whether who asks may do in c what they ask for, and why. It is pure.
func (p *Policy) Decide(c Configuration, q *Request) Verdict {
	v := Verdict{Symbol: Symbol{Kind: q.Kind, Name: q.Name}}
	if !p.has(c.State) || int(q.Kind) >= symbolKinds {
		v.Code = NotAvailable
		return v
	}
	if c.Complete {
		v.Code = RunComplete
		return v
	}
	switch b := p.lookup(c.State, q.Kind, q.Name, q.Listed); {
	case b != nil && b.offers(q.From) && p.isFor(c.State, b, q.who()):
		b.decide(&v, c.State, q, false)
		return v
	case b != nil: // the none that unbinds it, or what an operator alone may send
		v.Rule, v.ByGlob = b.Rule, b.Glob
	}
	v.Code = UnknownAction
	if p.offersAnywhere(q) {
		v.Code = InvalidTransition
	}
	return v
}

// who is whom a binding has to be for: an operator's signals are for whom they may be.
func (q *Request) who() *guard.Who {
	if q.From == Operator {
		return Anyone
	}
	return q.Who
}

// decide answers for a name that b binds, in a run or, as far as that goes, in any.
func (b *Binding) decide(v *Verdict, s State, q *Request, anyRun bool) {
	v.Rule, v.Bound, v.ByGlob = b.Rule, true, b.Glob
	var value Argument
	if b.By != "" && q.Args != nil {
		value = q.Args.Argument(b.Path)
	}
	selected := b.Select(value)
	if selected == nil || selected.None {
		v.Code = UnknownCase
		return
	}
	v.Symbol.Case = selected.Name
	meant := false
	for i := range selected.Alternatives {
		a := &selected.Alternatives[i]
		if len(a.For) > 0 && !fits(q.who(), a.For...) {
			continue
		}
		meant = true
		holds, err := a.holds(q, anyRun)
		switch {
		case holds:
			v.Allowed, v.Turn, v.Alternative, v.Symbol.Alternative = true, a.turn(s) || b.Kind == Signal, a, uint32(i)
			if len(selected.Alternatives) > 1 {
				v.Rule.Line, v.Rule.Column = a.Place.Line, a.Place.Column
			}
			return
		case err != nil:
			v.refuse(selected, q.who(), err)
			return
		}
	}
	if !meant {
		v.Symbol.Case, v.Code = "", UnknownCase
		return
	}
	v.refuse(selected, q.who(), nil)
}

// refuse turns down what no alternative is for, or what cannot be said of: a client is told
// the same.
func (v *Verdict) refuse(c *Case, who *guard.Who, fault error) {
	unclear, _ := errors.AsType[*guard.Error](fault)
	v.Code, v.Unmet = GuardFailed, &Unmet{reasons(c.Alternatives, who), fault}
	v.Unclear = unclear != nil && unclear.Reason == guard.UnclearKey
}

// By returns the path of the argument that splits a listed name in c, "" if none
// does.
func (p *Policy) By(c Configuration, k Kind, name string) string {
	if b := p.Binding(c, k, name, true); b != nil {
		return b.By
	}
	return ""
}

// Cases returns the cases of a listed name in a view that are for who asks, in the file's order,
// nil if it is not split.
func (p *Policy) Cases(v View, k Kind, name string) []Case {
	b := p.Binding(v.Configuration, k, name, true)
	if b == nil || b.By == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Cases), func(c Case) bool {
		return !c.None && !slices.ContainsFunc(c.Alternatives, func(a Alternative) bool { return fits(v.Who, a.For...) })
	})
}

// Visible reports whether a listed item is shown in a view: it is bound there, and no guard
// that lists follow refuses it whatever its arguments.
func (p *Policy) Visible(v View, k Kind, name string) bool {
	b := p.Binding(v.Configuration, k, name, true)
	return b != nil && p.isFor(v.State, b, v.Who) && b.shows(&v)
}

// VisibleDiffers reports whether two views may show different items of
// kind k, which servers list, from the bindings alone. False is certain; true may still come out the
// same for what a given upstream lists.
func (p *Policy) VisibleDiffers(a, b View, k Kind) bool {
	return a.Holds != b.Holds || p.asksWho && (a.State != b.State || a.Who != b.Who) || p.class(a.Configuration, k) != p.class(b.Configuration, k)
}

func (p *Policy) class(c Configuration, k Kind) int32 {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return 0
	}
	return p.states[c.State].class[k]
}

// Steady reports whether a name is bound in every state in which anything can be,
// and moves no run in any: what it reads hangs on nothing that the automaton knows.
func (p *Policy) Steady(k Kind, name string, listed bool) bool {
	if int(k) >= symbolKinds {
		return false
	}
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.bound(s, k, name, listed, Anyone)
		if b == nil || !p.unlimited(s) {
			return false
		}
		for a := range b.Alternatives() {
			if a.turn(s) || !a.steady() {
				return false
			}
		}
	}
	return true
}

// Everywhere says whether a name may be asked for in whatever state a run is in, and
// moves it from none: what a request may do that belongs to no run. Its verdict
// takes no turn. Where it is not allowed the code is RunNotFound: it hangs on the
// run. The request's Args may be called for several paths.
func (p *Policy) Everywhere(q *Request) Verdict {
	symbol := Symbol{Kind: q.Kind, Name: q.Name}
	all, refused := Verdict{}, Verdict{Code: RunNotFound, Symbol: symbol}
	if int(q.Kind) >= symbolKinds {
		return refused
	}
	once := q.remembering()
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.bound(s, q.Kind, q.Name, q.Listed, q.Who)
		if b == nil {
			return refused
		}
		v := Verdict{Symbol: symbol}
		b.decide(&v, s, &once, false)
		switch {
		case v.Unclear:
			return v
		case !v.Allowed || v.Turn || !b.steady(v.Symbol.Case) || !p.unlimited(s):
			return refused
		}
		v.ByGlob = v.ByGlob || all.ByGlob
		all = v
	}
	return all
}

// unlimited reports whether calls in a state are not counted, whatever they are.
func (p *Policy) unlimited(s State) bool {
	return p.limits.none() && p.states[s].limits.none() && len(p.states[s].audience) == 0
}

// steady reports whether what becomes of a case hangs on nothing of the run.
func (b *Binding) steady(name string) bool {
	return !slices.ContainsFunc(b.Case(name).Alternatives, func(a Alternative) bool { return !a.steady() })
}

// BoundAnywhere reports whether p binds a name in some state, after precedence
// and none: all that a stranded run may still call. listed is as for Decide. It
// does not allocate.
func (p *Policy) BoundAnywhere(k Kind, name string, listed bool) bool {
	return p.BoundFor(k, name, listed, Anyone)
}

// BoundFor is BoundAnywhere for who asks.
func (p *Policy) BoundFor(k Kind, name string, listed bool, who *guard.Who) bool {
	if int(k) >= symbolKinds {
		return false
	}
	for s := range p.states {
		if p.bound(State(s), k, name, listed, who) != nil {
			return true
		}
	}
	return false
}

// offersAnywhere is BoundAnywhere for who asks.
func (p *Policy) offersAnywhere(q *Request) bool {
	for s := range p.states {
		if b := p.lookup(State(s), q.Kind, q.Name, q.Listed); b != nil && b.offers(q.From) && p.isFor(State(s), b, q.who()) {
			return true
		}
	}
	return false
}

// DecideAnywhere says whether p allows a request in some state: all that a
// stranded run may still call. Guards that hang on the run are left out. Its verdict tells
// neither rule nor symbol, and is by a glob only if no exact name allows the same. The
// request's Args may be called for several paths.
func (p *Policy) DecideAnywhere(q *Request) Verdict {
	best := Verdict{Code: UnknownAction}
	if int(q.Kind) >= symbolKinds {
		return best
	}
	once := q.remembering()
	for s := range p.states {
		b := p.lookup(State(s), q.Kind, q.Name, q.Listed)
		if b == nil || !b.offers(q.From) || !p.isFor(State(s), b, q.who()) {
			continue
		}
		var v Verdict
		switch b.decide(&v, State(s), &once, true); {
		case v.Allowed && !v.ByGlob:
			return Verdict{Allowed: true, Bound: true}
		case v.Allowed:
			best = Verdict{Allowed: true, Bound: true, ByGlob: true}
		case !best.Allowed:
			best = Verdict{Code: v.Code, Bound: true, ByGlob: v.ByGlob, Unclear: v.Unclear, Unmet: v.Unmet}
		}
	}
	return best
}

// remembering is the request with Args that are asked once for a path that is asked for in a row.
func (q *Request) remembering() Request {
	var last []string // no path is empty
	var value Argument
	out, args := *q, q.Args
	out.Args = Lookup(func(path []string) Argument {
		if args != nil && !slices.Equal(path, last) {
			value, last = args.Argument(path), path
		}
		return value
	})
	return out
}

// BoundIn returns the states in which a name is bound, after precedence and
// none, in the file's order. listed is as for Decide.
func (p *Policy) BoundIn(k Kind, name string, listed bool) []State {
	if int(k) >= symbolKinds {
		return nil
	}
	var out []State
	for s := range p.states {
		if p.bound(State(s), k, name, listed, Anyone) != nil {
			out = append(out, State(s))
		}
	}
	return out
}

// ExactIn returns the exact names of kind k that a view shows, in the file's order.
func (p *Policy) ExactIn(c View, k Kind) []string {
	if c.Complete || !p.has(c.State) || int(k) >= symbolKinds {
		return nil
	}
	var out []string
	for _, name := range p.Exact(k) {
		if b := p.bound(c.State, k, name, false, c.Who); b != nil && b.shows(&c) {
			out = append(out, name)
		}
	}
	return out
}

// Exact returns the exact names of kind k that are bound in some state, in the
// file's order.
func (p *Policy) Exact(k Kind) []string {
	if int(k) >= symbolKinds {
		return nil
	}
	return slices.Clone(p.exact[k])
}

// HasSignals reports whether the agent may send a signal in some state.
func (p *Policy) HasSignals() bool { return len(p.exact[Signal]) > 0 }

// SignalText returns the first description of a signal of the agent's, "" if it has none.
func (p *Policy) SignalText(name string) string {
	for b := range p.Bindings() {
		if b.Kind == Signal && b.Pattern == name && b.offered() && b.Says != "" {
			return b.Says
		}
	}
	return ""
}

// Step is where one outcome led. It says what to record and where the run rests
// now; doing it is the caller's business.
type Step struct {
	// From and To are the configurations before and after. After a terminal edge
	// To is the initial one on Restart, and the entered state, complete, on Stop.
	From, To Configuration
	// Entered is the state that the edge leads to, which is what is recorded: on
	// Restart a completed run was in it though it never rested there.
	Entered State
	// Terminal is whether the edge completed the run.
	Terminal bool
	// Restarted is whether a new run began in this step.
	Restarted bool
	// Changed is whether To differs from From or a new run began.
	Changed bool
}

// Next says where outcome o of symbol s leads from c. It is pure. The symbol is
// one that Decide allowed in c: a symbol that is not bound there, no outcome, and
// a complete configuration are errors.
func (p *Policy) Next(c Configuration, s Symbol, o Outcome) (Step, error) {
	b := p.Binding(c, s.Kind, s.Name, true)
	if b == nil {
		return Step{}, fmt.Errorf("stepping %s %q: not bound in %s", s.Kind, s.Name, p.describe(c))
	}
	selected := b.Case(s.Case)
	if selected == nil || selected.None {
		return Step{}, fmt.Errorf("stepping %s %q: no case %q in %s", s.Kind, s.Name, s.Case, p.describe(c))
	}
	if !o.valid() {
		return Step{}, fmt.Errorf("stepping %s %q: %v is no outcome", s.Kind, s.Name, o)
	}
	if int(s.Alternative) >= len(selected.Alternatives) {
		return Step{}, fmt.Errorf("stepping %s %q: no alternative %d in %s", s.Kind, s.Name, s.Alternative, p.describe(c))
	}
	edges := selected.Alternatives[s.Alternative].edges
	if o.Index() >= len(edges) {
		return Step{}, fmt.Errorf("stepping %s %q: %v is no outcome in %s", s.Kind, s.Name, o, p.describe(c))
	}
	return p.step(c, &edges[o.Index()])
}

// AlternativeOf returns the way by which a symbol goes in c, nil where there is none.
func (p *Policy) AlternativeOf(c Configuration, s Symbol) *Alternative {
	b := p.Binding(c, s.Kind, s.Name, true)
	if b == nil {
		return nil
	}
	selected := b.Case(s.Case)
	if selected == nil || selected.None || int(s.Alternative) >= len(selected.Alternatives) {
		return nil
	}
	return &selected.Alternatives[s.Alternative]
}

// Expire says where the clock of c's state leads. It is pure.
func (p *Policy) Expire(c Configuration) (Step, error) {
	after := p.After(c.State)
	if after == nil || c.Complete {
		return Step{}, fmt.Errorf("stepping by a clock: there is none in %s", p.describe(c))
	}
	return p.step(c, &after.edge)
}

// step goes along an edge.
func (p *Policy) step(c Configuration, e *edge) (Step, error) {
	if !e.Changes(c.State) {
		return Step{From: c, To: c, Entered: c.State}, nil
	}
	t, err := p.fire(c, e)
	if err != nil {
		return Step{}, err
	}
	step := p.arrive(c, t)
	if len(p.returns.all) > 0 && !step.Terminal {
		step.To = p.rest(c, step.Entered, e.State == Origin)
	}
	return step, nil
}

// arrive returns the step along an edge that changes the configuration.
func (p *Policy) arrive(c Configuration, t Target) Step {
	step := Step{From: c, Entered: t.In(c.State), Terminal: t.Terminal, Changed: true}
	switch {
	case !t.Terminal:
		step.To = Configuration{State: step.Entered}
	case p.OnComplete() == Restart:
		step.To, step.Restarted = p.Initial(), true
	default:
		step.To = Configuration{State: step.Entered, Complete: true}
	}
	return step
}

// describe names a configuration in an error.
func (p *Policy) describe(c Configuration) string {
	switch {
	case !p.has(c.State):
		return fmt.Sprintf("state %d, which the policy does not have", c.State)
	case c.Complete:
		return fmt.Sprintf("state %q, complete", p.states[c.State].Name)
	}
	return fmt.Sprintf("state %q", p.states[c.State].Name)
}

// Adopt says where a run that rests in configuration c of old stands under p: in
// the state that p's renamed gives its state, else in the state of the same
// name. A complete run stays complete. A run under way whose state p made
// terminal completes there as if it had just entered it, so that it begins anew
// in the initial state on Restart. ok is false, and the configuration without
// meaning, where p has no such state: the run is stranded. Where it would have returned to
// is mapped alike; what p does not have is the initial state. Adopt is pure and
// does not allocate but for a run that can return.
func (p *Policy) Adopt(old *Policy, c Configuration) (adopted Configuration, ok bool) {
	if !old.has(c.State) {
		return Configuration{}, false
	}
	s, ok := p.Heir(old.states[c.State].Name)
	switch {
	case !ok:
		return Configuration{}, false
	case c.Complete || !p.states[s].Terminal:
		return Configuration{State: s, Complete: c.Complete, origins: p.adoptOrigins(old, c, s)}, true
	}
	return p.arrive(Configuration{State: s}, Target{State: s, Terminal: true}).To, true
}

// Heir returns the state of p that takes the place of another policy's state: what p
// renames it to, else the one of the same name.
func (p *Policy) Heir(name string) (State, bool) {
	if s, ok := p.renames[name]; ok {
		return s, true
	}
	s, ok := p.byName[name]
	return s, ok
}

// Renames reports whether p gives new names to states of policies before it.
func (p *Policy) Renames() bool { return len(p.renames) > 0 }

// enterMachines prepares the pool of looplab/fsm machines that take the steps which
// leave a configuration. The table lists and decides; where such a step arrives is the
// machine's answer.
//
// A machine of 20 states and 12 edges each costs 116 kB and 0.15 ms to build, so runs
// share the policy's, one for each step at the same time: the state is set before each
// use. A terminal edge leads to a state of its own beside its target's, so that a
// state's terminal edge to itself is a transition like any other.
func (p *Policy) enterMachines() {
	p.arrivals = make(map[string]Target, 2*len(p.states))
	for s := range p.states {
		st := &p.states[s]
		st.running = strconv.Itoa(s) + ":" + st.Name // unique, whatever the states are called
		st.completed = st.running + "/complete"
		p.arrivals[st.running] = Target{State: State(s)}
		p.arrivals[st.completed] = Target{State: State(s), Terminal: true}
	}
	events := sync.OnceValue(p.events)
	p.machines.New = func() any { return fsm.NewFSM(p.states[p.initial].running, events(), nil) }
}

// events lists a transition for every edge that changes the configuration. The name of
// an event is unique for each pattern, case, alternative and outcome; a pair of event and source is,
// since a state's own binding replaces everywhere's of the same pattern.
func (p *Policy) events() fsm.Events {
	var out fsm.Events
	for s := range p.states {
		for b := range p.Effective(State(s)) {
			for a := range b.Alternatives() {
				for _, e := range a.edges {
					if e.Changes(State(s)) {
						out = append(out, fsm.EventDesc{Name: e.event, Src: []string{p.states[s].running}, Dst: p.machineState(e.Target, State(s))})
					}
				}
			}
		}
	}
	for s := range p.states {
		if after := p.After(State(s)); after != nil {
			out = append(out, fsm.EventDesc{Name: after.event, Src: []string{p.states[s].running}, Dst: p.machineState(after.Target, State(s))})
		}
		if len(p.returns.all) > 0 {
			out = append(out, fsm.EventDesc{Name: p.states[s].back(), Src: []string{returns}, Dst: p.states[s].running})
		}
	}
	return out
}

// returns is the machines' state between the edge that returns, and the event that goes back
// to where the run came from.
const returns = "returns"

// back is the name of the event by which a machine goes back to a state.
func (s *stateEntry) back() string { return "back to " + s.running }

// machineState returns the machine's name for where a target leads from s.
func (p *Policy) machineState(t Target, s State) string {
	if t.State == Origin {
		return returns
	}
	st := &p.states[t.In(s)]
	if t.Terminal {
		return st.completed
	}
	return st.running
}

// fire fires an edge's event on a machine that is in c's state, and returns where it arrives.
// The context is never one that can be cancelled: that wedges a machine for good.
func (p *Policy) fire(c Configuration, e *edge) (Target, error) {
	m := p.machines.Get().(*fsm.FSM)
	defer p.machines.Put(m)
	m.SetState(p.states[c.State].running)
	err := m.Event(context.Background(), e.event)
	if err == nil && e.State == Origin {
		err = m.Event(context.Background(), p.states[p.originIn(c, e.Target)].back())
	}
	if err != nil {
		return Target{}, fmt.Errorf("stepping the machine from state %q: %w", p.states[c.State].Name, err)
	}
	return p.arrivals[m.Current()], nil
}
