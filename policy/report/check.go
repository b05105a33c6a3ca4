// Package report says of compiled policies what people want to know: findings about one
// ([Check]), about one and what an upstream lists ([Against]), what a reload of another
// changes ([Compare]), and pictures ([Text], [Mermaid], [DOT], [JSON]). It reads the edge
// table of package policy, decides nothing, and is as pure.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Parse is policy.Parse with all that there is to say of the file, Check's findings
// among them: what is enforced is parsed by it. The policy is nil if, and only if, one of
// the findings is an error.
func Parse(file string, src []byte) (*policy.Policy, policy.Findings) {
	return ParseParts(file, src, nil)
}

// ParseParts is Parse of a file that may have parts, which open returns.
func ParseParts(file string, src []byte, open policy.Opener) (*policy.Policy, policy.Findings) {
	p, found := policy.CompileParts(file, src, open)
	if found = found.Merge(Check(p)); found.Err() != nil {
		return nil, found
	}
	return p, found
}

// Check returns what is odd about a policy as a whole, in the file's order: an error
// where no run can complete though the file says how, else warnings and notes. Of no
// policy there is nothing to say.
func Check(p *policy.Policy) policy.Findings {
	if p == nil {
		return nil
	}
	c := &checker{r: collector(p), p: p, states: p.States()}
	c.graph = graphOf(p, len(c.states))
	c.checkTerminals()
	for s := range c.states {
		c.checkState(policy.State(s))
	}
	c.checkShadowed()
	c.checkUnbinding()
	c.checkCases()
	c.checkExpressions()
	c.noteCycle()
	c.noteCompletion()
	c.noteStays()
	c.checkUnknown()
	c.checkApproval()
	c.checkClients()
	return c.r.Findings()
}

// collector gathers findings about a policy's file.
func collector(p *policy.Policy) *strictyaml.Reader {
	return strictyaml.NewReader(p.File(), strictyaml.Language{})
}

// checker looks at a compiled policy as a whole.
type checker struct {
	r      *strictyaml.Reader
	p      *policy.Policy
	states []policy.StateInfo
	graph  graph
}

// graph is the table without its symbols: which states lead where.
type graph struct {
	next        [][]policy.State // over edges that are not terminal
	ends        [][]policy.State // the targets of terminal edges
	binds       []bool           // binds something, or has a clock
	agents      []bool           // binds something that the agent may use, or has a clock
	reachable   []bool           // from the initial state
	ended       []bool           // the target of a terminal edge that is reached
	coreachable []bool           // a terminal edge is reached from here
}

func graphOf(p *policy.Policy, n int) graph {
	g := graph{
		next: make([][]policy.State, n), ends: make([][]policy.State, n),
		binds: make([]bool, n), agents: make([]bool, n), reachable: make([]bool, n), ended: make([]bool, n), coreachable: make([]bool, n),
	}
	for s := range policy.State(n) {
		g.addState(p, s)
	}
	initial := p.Initial().State
	g.reachable[initial] = true
	walk([]policy.State{initial}, g.next, g.reachable)
	for s := range g.ends {
		for _, t := range g.ends[s] {
			g.ended[t] = g.ended[t] || g.reachable[s]
		}
	}
	for s := range g.reachable {
		g.reachable[s] = g.reachable[s] || p.State(policy.State(s)).Terminal && g.ended[s]
	}
	before := make([][]policy.State, n)
	var accepting []policy.State
	for s := range policy.State(n) {
		for _, t := range g.next[s] {
			before[t] = append(before[t], s)
		}
		if len(g.ends[s]) > 0 {
			g.coreachable[s] = true
			accepting = append(accepting, s)
		}
	}
	walk(accepting, before, g.coreachable)
	return g
}

// addState enters a state's edges, each target once.
func (g *graph) addState(p *policy.Policy, s policy.State) {
	seen := map[policy.Target]bool{}
	lead := func(t policy.Target) {
		t.State = t.In(s)
		switch {
		case seen[t]:
		case t.State == policy.Origin:
			g.next[s] = append(g.next[s], p.ReturnsTo(t, s)...)
		case t.Terminal:
			g.ends[s] = append(g.ends[s], t.State)
		default:
			g.next[s] = append(g.next[s], t.State)
		}
		seen[t] = true
	}
	if clock := p.After(s); clock != nil { // nobody has to do anything there
		g.binds[s], g.agents[s] = true, true
		lead(clock.Leads())
	}
	for b := range p.Effective(s) {
		g.binds[s] = g.binds[s] || !b.None
		g.agents[s] = g.agents[s] || !b.None && b.From == policy.Agent
		for a := range b.Alternatives() {
			for _, o := range a.AllOutcomes() {
				lead(a.Leads(o))
			}
		}
	}
}

// walk marks what the edges lead to from states that are marked.
func walk(from []policy.State, edges [][]policy.State, marked []bool) {
	for len(from) > 0 {
		s := from[len(from)-1]
		from = from[:len(from)-1]
		for _, t := range edges[s] {
			if !marked[t] {
				marked[t] = true
				from = append(from, t)
			}
		}
	}
}

// cycle returns states that runs can go round through, in order, nil if there are
// none. To stay in a state is no cycle.
func (g *graph) cycle() []policy.State {
	leads := make([]int, len(g.next)) // how many reachable states it leads to that may be on a cycle
	before := make([][]policy.State, len(g.next))
	var dead []policy.State
	for s := range policy.State(len(g.next)) {
		for _, t := range g.next[s] {
			if g.reachable[s] && t != s {
				leads[s]++
				before[t] = append(before[t], s)
			}
		}
		if leads[s] == 0 {
			dead = append(dead, s)
		}
	}
	for len(dead) > 0 { // take away what leads nowhere
		s := dead[len(dead)-1]
		dead = dead[:len(dead)-1]
		for _, t := range before[s] {
			if leads[t]--; leads[t] == 0 {
				dead = append(dead, t)
			}
		}
	}
	from := slices.IndexFunc(leads, func(n int) bool { return n > 0 })
	if from < 0 {
		return nil
	}
	var path []policy.State
	at := make(map[policy.State]int)
	for s := policy.State(from); ; {
		if i, met := at[s]; met {
			return path[i:]
		}
		at[s] = len(path)
		path = append(path, s)
		others := g.next[s]
		s = others[slices.IndexFunc(others, func(t policy.State) bool { return t != s && leads[t] > 0 })]
	}
}

// completable reports whether some run can complete.
func (c *checker) completable() bool { return c.graph.coreachable[c.p.Initial().State] }

// initial names the initial state in a message.
func (c *checker) initial() string { return strictyaml.Quote(c.p.StateName(c.p.Initial().State)) }

// checkTerminals reports terminals that no run gets to.
func (c *checker) checkTerminals() {
	if place, what := c.terminal(); what != "" && !c.completable() {
		c.r.Errorf(place, "no-terminal-reached", "%s, but no terminal is reached from %s: no run can complete; lead an edge there, or remove \"terminal\"", what, c.initial())
	}
}

// terminal finds the first terminal that the file declares.
func (c *checker) terminal() (place policy.Place, what string) {
	for _, st := range c.states {
		if st.Terminal {
			return st.Place, "state " + strictyaml.Quote(st.Name) + " is terminal"
		}
	}
	for s := range c.states {
		if after := c.p.After(policy.State(s)); after != nil && after.Leads().Terminal {
			return after.Rule.Place(), "the clock of " + strictyaml.Quote(c.states[s].Name) + " is terminal"
		}
	}
	for b := range c.p.Bindings() {
		if completes(b) {
			return b.Place(), "an edge of " + strictyaml.Quote(b.Pattern) + " is terminal"
		}
	}
	return place, ""
}

// completes reports whether some edge of a binding is terminal.
func completes(b *policy.Binding) bool {
	for a := range b.Alternatives() {
		if a.Completes() {
			return true
		}
	}
	return false
}

// checkState warns of a state in which something about the graph is odd.
func (c *checker) checkState(s policy.State) {
	st, g := &c.states[s], &c.graph
	name := strictyaml.Quote(st.Name)
	switch {
	case g.reachable[s]:
	case g.ended[s]:
		c.r.Add(policy.LevelWarning, st.Place, "unreachable", "only terminal edges lead to state %s, so no run goes on there; make it terminal, or lead another edge to it", name)
	default:
		c.r.Add(policy.LevelWarning, st.Place, "unreachable", "state %s is not reached from %s; lead an edge to it, or remove it", name, c.initial())
	}
	switch {
	case st.Terminal:
	case !g.binds[s]:
		c.r.Add(policy.LevelWarning, st.Place, "dead-end", "state %s is a dead end: nothing is bound there, so a run that enters it rests there for ever; bind a name that leads on, or make the state terminal", name)
	case !g.agents[s]:
		c.r.Add(policy.LevelNote, st.Place, "operator-only", "in state %s only an operator's signals are bound: the agent can do nothing there, and a run waits until an operator sends one", name)
	case g.reachable[s] && c.completable() && !g.coreachable[s]:
		c.r.Add(policy.LevelWarning, st.Place, "trap", "state %s is a trap: a run that enters it can never complete; lead an edge out of it", name)
	}
}

// checkShadowed warns of what everywhere binds and every state replaces.
func (c *checker) checkShadowed() {
	for _, k := range policy.SymbolKinds {
		for _, b := range c.p.BindingsIn(policy.Everywhere, k) {
			if !c.taken(b) {
				c.r.Add(policy.LevelWarning, b.Place(), "shadowed", "%s has no effect: every state gives it a value of its own, is terminal, or takes nothing of everywhere; remove it", strictyaml.Quote(b.Pattern))
			}
		}
	}
}

// taken reports whether some state takes a binding of everywhere.
func (c *checker) taken(b *policy.Binding) bool {
	for s := range c.states {
		if c.p.Takes(policy.State(s), b) {
			return true
		}
	}
	return false
}

// checkUnbinding warns of a state's "*": none that names of everywhere survive,
// since they are the more specific.
func (c *checker) checkUnbinding() {
	for s := range policy.State(len(c.states)) {
		for _, k := range policy.AllKinds {
			for _, b := range c.p.BindingsIn(s, k) {
				if b.None && b.Pattern == "*" {
					c.warnSurvivors(s, b)
				}
			}
		}
	}
}

func (c *checker) warnSurvivors(s policy.State, none *policy.Binding) {
	var names []string
	for _, b := range c.p.BindingsIn(policy.Everywhere, none.Kind) {
		if !b.None && c.p.Takes(s, b) {
			names = append(names, b.Pattern)
		}
	}
	for _, b := range c.p.BindingsIn(s, none.Kind) { // what everywhere of a part's file binds in its states
		if !b.None && none.Shared == "" && b.Shared != "" && b.Shared == c.states[s].Part+"/" {
			names = append(names, b.Pattern)
		}
	}
	if len(names) > 0 {
		c.r.Add(policy.LevelWarning, none.Place(), "survives-none", "\"*\": none does not unbind %s: names of everywhere are more specific than \"*\"; write \"everywhere: false\" in state %s to take nothing of everywhere, or give each name a value in the state",
			strictyaml.And(names), strictyaml.Quote(c.states[s].Name))
	}
}

// noteCycle notes that runs of a policy without a terminal go round and never end.
func (c *checker) noteCycle() {
	if _, what := c.terminal(); what != "" {
		return
	}
	cycle := c.graph.cycle()
	if len(cycle) == 0 {
		return
	}
	names := make([]string, len(cycle))
	for i, s := range cycle {
		names[i] = c.states[s].Name
	}
	c.r.Add(policy.LevelNote, c.states[cycle[0]].Place, "cycle", "runs go round through %s and never complete, as no edge is terminal: what may be called once in a round may be called again in the next; make an edge terminal if the work has an end",
		strictyaml.And(names))
}

// noteCompletion notes what follows the edges that complete a run, where the file
// does not say it.
func (c *checker) noteCompletion() {
	if c.p.SaysOnComplete() {
		return
	}
	var completing []*policy.Binding
	for b := range c.p.Bindings() {
		if completes(b) {
			completing = append(completing, b)
		}
	}
	if len(completing) == 0 {
		return
	}
	verb := "complete"
	if len(completing) == 1 {
		verb = "completes"
	}
	c.r.Add(policy.LevelNote, completing[0].Place(), "no-on-complete", "%s %s the run, and there is no \"on_complete\": in the same step the run begins anew at %s, under the same key, so what was done once may be done again; write \"on_complete: stop\" if it may not, \"on_complete: restart\" if it may",
		patterns(completing), verb, c.initial())
}

// noteStays notes the outcomes that stay because nothing is said of them.
func (c *checker) noteStays() {
	for home := policy.Everywhere; int(home) < len(c.states); home++ {
		for _, k := range policy.AllKinds {
			bare := map[string][]*policy.Binding{} // by what binds them: a part's states have much in common
			for _, b := range c.p.BindingsIn(home, k) {
				if b.By == "" && !b.None && b.Cases[0].Bare {
					bare[b.Shared] = append(bare[b.Shared], b)
					continue
				}
				c.noteStay(b)
			}
			for _, some := range bare {
				c.r.Add(policy.LevelNote, some[0].Place(), "implicit-stay", "%s: nothing is said, so the state stays whatever the outcome", patterns(some))
			}
		}
	}
}

func (c *checker) noteStay(b *policy.Binding) {
	var left []string
	for i := range b.Cases {
		x := &b.Cases[i]
		for j := range x.Alternatives {
			a := &x.Alternatives[j]
			for _, o := range a.AllOutcomes() {
				if o == policy.Unknown || !a.Leaves(b.Home) || a.Says(o) {
					continue
				}
				what := "on " + a.OutcomeName(o)
				if b.By != "" {
					what += " in case " + quoted(x)
				}
				if len(x.Alternatives) > 1 {
					what += fmt.Sprintf(" of alternative %d", j+1)
				}
				left = append(left, what)
			}
		}
	}
	if len(left) > 0 {
		c.r.Add(policy.LevelNote, b.Place(), "implicit-stay", "%s: nothing is said of what follows %s, so the state stays", strictyaml.Quote(b.Pattern), strings.Join(left, ", "))
	}
}

// checkUnknown warns of tools that lead on without saying what follows an unknown
// outcome: a client that cancels such a call may have had its effect, and can call
// it again. To read a resource or a prompt twice does no harm, so those are notes.
func (c *checker) checkUnknown() {
	for b := range c.p.Bindings() {
		level, as := policy.LevelNote, unknownLeads(b)
		if b.Kind == policy.Tool {
			level = policy.LevelWarning
		}
		if as != "" {
			c.r.AddAbout(level, b.Place(), noOnUnknown, b.Pattern, "%s%s: a call that was sent and then cancelled, or never answered, may have happened, and is taken as %s; say where it leads (stay: it may be called again)",
				strictyaml.Quote(b.Pattern), lacksUnknown.one, as)
		}
	}
}

// unknownLeads says what an unknown outcome is taken as in the first alternative of a binding
// that leads on and does not say where unknown leads; it is "" if none does so.
func unknownLeads(b *policy.Binding) string {
	for x := range b.Alternatives() {
		switch {
		case !x.Leaves(b.Home) || x.Says(policy.Unknown):
		case x.Says(policy.Error):
			return "on_error"
		default:
			return "stay"
		}
	}
	return ""
}

// approvals are what names of approvals have in them.
var approvals = []string{"approv", "authori", "confirm", "consent", "permit", "permission", "sign_off", "signoff"}

// checkApproval warns of signals whose names sound like somebody else's approval, and
// which the agent sends.
func (c *checker) checkApproval() {
	for b := range c.p.Bindings() {
		name := strings.ToLower(b.Pattern)
		if b.Kind == policy.Signal && !b.None && b.From == policy.Agent &&
			slices.ContainsFunc(approvals, func(word string) bool { return strings.Contains(name, word) }) {
			c.r.Add(policy.LevelWarning, b.Place(), "self-approval", "%s sounds like an approval, and the agent sends it: its signals are order, and no approval; write \"from: operator\", or call it what the agent does",
				strictyaml.Quote(b.Pattern))
		}
	}
}

// checkClients notes where a client is believed that its user approves.
func (c *checker) checkClients() {
	noted := map[policy.Place]bool{} // what stands beside cases, or in everywhere, is in many bindings
	for b := range c.p.Bindings() {
		for x := range b.Alternatives() {
			if x.Approve == nil || x.Approve.By != policy.ByClient || noted[x.Approve.Place] {
				continue
			}
			noted[x.Approve.Place] = true
			c.r.Add(policy.LevelNote, x.Approve.Place, "client-approval", "%s is approved by whoever the client says: it may answer by itself, without asking anybody; write by: operator where the client is not trusted",
				strictyaml.Quote(b.Pattern))
		}
	}
}

// patterns returns the patterns of bindings in a message, each once.
func patterns(bs []*policy.Binding) string {
	var names []string
	for _, b := range bs {
		names = appendNew(names, b.Pattern)
	}
	return strictyaml.And(names)
}
