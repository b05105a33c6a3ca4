package report

import (
	"regexp"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// checkExpressions looks at guards, alternatives, outcomes and registers.
func (c *checker) checkExpressions() {
	for b := range c.p.Bindings() {
		for i := range b.Cases {
			c.checkAlternatives(&b.Cases[i])
		}
	}
	c.checkRegisters()
	c.noteRunLimits()
}

// constant returns what an expression is, if it reads nothing.
func constant(p *guard.Program) (value, ok bool) {
	r := p.Reads()
	if len(r.Args)+len(r.Result)+len(r.Claims)+len(r.Registers) > 0 || r.Name || r.Run || r.Who || r.Now {
		return false, false
	}
	value, err := p.Holds(&guard.Call{})
	return value, err == nil
}

// checkAlternatives warns of conditions that decide nothing, and of what they hide.
func (c *checker) checkAlternatives(x *policy.Case) {
	for i := range x.Alternatives {
		a := &x.Alternatives[i]
		for _, g := range a.Guards {
			c.checkStateNames(g)
			switch holds, ok := constant(g.Program); {
			case ok && holds:
				c.r.Add(policy.LevelWarning, g.Place, "constant-guard", "when: %s is always true, whatever is called; remove it, or read what it is to hang on", strictyaml.Quote(g.String()))
			case ok:
				c.r.Add(policy.LevelWarning, g.Place, "constant-guard", "when: %s is never true, so no such call is let go; write \"none\" if that is meant", strictyaml.Quote(g.String()))
			}
		}
		if before := slices.IndexFunc(x.Alternatives[:i], func(b policy.Alternative) bool { return covers(&b, a) }); before >= 0 {
			c.r.Add(policy.LevelWarning, a.Place, "unreachable-alternative", "alternative %d is never the one: alternative %d stands before it, and is for all calls that this one is for; change their order, or remove it", i+1, before+1)
		}
		c.checkOutcomes(a)
	}
}

// namedStates are comparisons of run.state with a text.
var namedStates = regexp.MustCompile(`\brun\.state\s*[=!]=\s*(?:"([^"\\]*)"|'([^'\\]*)')`)

// checkStateNames warns of a guard that compares the run's state with what is no state.
func (c *checker) checkStateNames(g policy.Guard) {
	for _, m := range namedStates.FindAllStringSubmatch(g.String(), -1) {
		name := m[1] + m[2]
		if _, is := c.p.StateByName(name); is {
			continue
		}
		names := make([]string, len(c.states))
		for i, s := range c.states {
			names[i] = s.Name
		}
		c.r.Add(policy.LevelWarning, g.Place, "constant-guard", "when: run.state is never %s, as there is no such state%s", strictyaml.Quote(name), c.r.DidYouMean(name, names))
	}
}

// covers reports whether the conditions of a are among those of another alternative: where they hold, so do a's.
func covers(a, of *policy.Alternative) bool {
	if !slices.EqualFunc(a.For, of.For, func(x, y policy.Audience) bool { return x.String() == y.String() }) && len(a.For) > 0 {
		return false
	}
	return !slices.ContainsFunc(a.Guards, func(g policy.Guard) bool {
		if always, ok := constant(g.Program); ok && always {
			return false
		}
		return !slices.ContainsFunc(of.Guards, func(h policy.Guard) bool { return h.String() == g.String() })
	})
}

// checkOutcomes warns of outcomes that no result has.
func (c *checker) checkOutcomes(a *policy.Alternative) {
	for i, x := range a.Outcomes {
		if holds, ok := constant(x.Program); ok && !holds {
			c.r.Add(policy.LevelWarning, x.Place, "shadowed-outcome", "outcome %s is never true; remove it, or read the result", strictyaml.Quote(x.Name))
			continue
		}
		for _, before := range a.Outcomes[:i] {
			if always, ok := constant(before.Program); ok && always || before.String() == x.String() {
				c.r.Add(policy.LevelWarning, x.Place, "shadowed-outcome", "no result is %s: it is %s first; change their order, or remove it", strictyaml.Quote(x.Name), strictyaml.Quote(before.Name))
				break
			}
		}
	}
}

// used is what is done to registers: where they are read, and where something may have been set.
type used struct {
	read map[string]bool           // by anything
	set  map[string][]policy.State // where runs are in which it may be set, as far as edges lead there
}

// checkRegisters notes registers that nobody reads, and warns of those that are read where nothing can have been set.
func (c *checker) checkRegisters() {
	if len(c.p.Registers()) == 0 {
		return
	}
	u := used{map[string]bool{}, map[string][]policy.State{}}
	for s := range policy.State(len(c.states)) {
		if after := c.p.After(s); after != nil {
			c.enterSets(&u, s, after.Leads(), after.Sets())
		}
		for b := range c.p.Effective(s) {
			for a := range b.Alternatives() {
				for _, g := range a.Guards {
					u.reads(g.Program)
				}
				for _, x := range a.Outcomes {
					u.reads(x.Program)
				}
				for _, o := range a.AllOutcomes() {
					c.enterSets(&u, s, a.Leads(o), a.Sets(o))
				}
			}
		}
	}
	for _, r := range c.p.Registers() {
		switch _, set := u.set[r.Name]; {
		case !u.read[r.Name]:
			c.r.Add(policy.LevelNote, r.Place, "unread-register", "register %s is read by no expression, so nothing hangs on it: operators alone see it", strictyaml.Quote(r.Name))
		case r.Kind == guard.TextSet || r.Kind == guard.Counter: // those begin with a value
			if !set {
				c.r.Add(policy.LevelWarning, r.Place, "unset-register", "register %s is read, and nothing sets it: it is as it begins for ever; set it, or remove it", strictyaml.Quote(r.Name))
			}
		default:
			c.checkUnset(r.Name, u.set[r.Name])
		}
	}
}

func (u *used) reads(p *guard.Program) {
	for _, name := range p.Reads().Registers {
		u.read[name] = true
	}
}

// enterSets enters an edge's assignments: what they read, and where it leads in state s.
func (c *checker) enterSets(u *used, s policy.State, t policy.Target, set []policy.Assignment) {
	for _, x := range set {
		for _, v := range x.Values {
			u.reads(v)
		}
		if x.Operation == register.Empty || !c.graph.reachable[s] || t.Terminal {
			continue
		}
		to := []policy.State{t.In(s)}
		if t.State == policy.Origin {
			to = c.p.ReturnsTo(t, s)
		}
		u.set[x.Register.Name] = append(u.set[x.Register.Name], to...)
	}
}

// reader is an expression that reads a register, and what comes of it where nothing has set that.
type reader struct {
	*guard.Program
	place  policy.Place
	what   string
	follow string
}

// readers are the expressions of state s.
func (c *checker) readers(s policy.State) (all []reader) {
	sets := func(set []policy.Assignment, follow string) {
		for _, x := range set {
			follow := follow
			if x.Late {
				follow = "the outcome is unknown, and nothing is set"
			}
			for _, v := range x.Values {
				all = append(all, reader{v, x.Place, "set: " + x.Register.Name, follow})
			}
		}
	}
	if after := c.p.After(s); after != nil {
		sets(after.Sets(), "nothing is set")
	}
	for b := range c.p.Effective(s) {
		for a := range b.Alternatives() {
			for _, g := range a.Guards {
				all = append(all, reader{g.Program, g.Place, "when", "no call is let go"})
			}
			for _, x := range a.Outcomes {
				all = append(all, reader{x.Program, x.Place, "outcomes: " + x.Name, "a success is unknown"})
			}
			for _, o := range a.AllOutcomes() {
				sets(a.Sets(o), "no call is let go")
			}
		}
	}
	return all
}

// checkUnset warns of expressions that read a register in states to which no path leads on which it was set.
func (c *checker) checkUnset(name string, set []policy.State) {
	may := make([]bool, len(c.states))
	for _, s := range set {
		may[s] = true
	}
	walk(slices.Clone(set), c.graph.next, may)
	lacks := map[policy.Place]bool{} // by expression: in every state in which it has a say
	var order []reader
	for s := range policy.State(len(c.states)) {
		if !c.graph.reachable[s] {
			continue
		}
		for _, x := range c.readers(s) {
			if !slices.Contains(x.Reads().Registers, name) || strings.Contains(x.String(), "has(registers."+name) {
				continue
			}
			was, known := lacks[x.place]
			if !known {
				order = append(order, x)
			}
			lacks[x.place] = !may[s] && (was || !known)
		}
	}
	for _, x := range order {
		if lacks[x.place] {
			c.r.Add(policy.LevelWarning, x.place, "unset-register", "%s: it reads register %s, which nothing has set on any way here, so %s; set it before, or ask has(registers.%s)", x.what, strictyaml.Quote(name), x.follow, name)
		}
	}
}

// noteRunLimits notes names that have a limit of the run in several states: each counts for itself.
func (c *checker) noteRunLimits() {
	type name struct {
		kind    policy.Kind
		pattern string
	}
	keys, first := map[name][]string{}, map[name]*policy.Binding{}
	var order []name
	for b := range c.p.Bindings() {
		n := name{b.Kind, b.Pattern}
		for a := range b.Alternatives() {
			for _, l := range a.Limits.Own {
				home, _, _ := strings.Cut(l.Key, "\x00")
				if l.Span != limit.Run || slices.Contains(keys[n], home) {
					continue
				}
				if first[n] == nil {
					first[n], order = b, append(order, n)
				}
				keys[n] = append(keys[n], home)
			}
		}
	}
	for _, n := range order {
		if len(keys[n]) > 1 {
			c.r.Add(policy.LevelNote, first[n].Place(), "run-limits", "%s has a limit of the run in %d places, and each counts for itself: a run may make as many calls as all of them together; bind it in \"everywhere\" to count them as one",
				strictyaml.Quote(n.pattern), len(keys[n]))
		}
	}
}
