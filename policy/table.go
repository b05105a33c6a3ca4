package policy

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

// Kind is what a name names. The zero value is Tool. Servers list names of all kinds but
// the last: a signal is what no server does, and the agent or an operator says.
type Kind uint8

// The kinds of names, in the order of the policy file's keys.
const (
	Tool Kind = iota
	Resource
	Prompt
	Signal
)

// Kinds is the number of kinds that servers list, for arrays indexed by Kind.
const Kinds = len(syntax.Kinds)

// AllKinds lists every kind that servers list, for loops.
var AllKinds = [Kinds]Kind{Tool, Resource, Prompt}

// symbolKinds is the number of kinds of symbols: those that servers list, and signals.
const symbolKinds = Kinds + 1

// SymbolKinds lists every kind of symbols, for loops.
var SymbolKinds = [symbolKinds]Kind{Tool, Resource, Prompt, Signal}

// String returns "tool", "resource", "prompt" or "signal".
func (k Kind) String() string {
	switch {
	case int(k) < Kinds:
		return syntax.Kinds[k]
	case k == Signal:
		return "signal"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText returns the kind's word, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Plural returns the policy file's key for the kind: "tools", "resources", "prompts" or
// "signals".
func (k Kind) Plural() string { return k.String() + "s" }

// Sender is who sends a signal. The zero value is Agent.
type Sender uint8

// The senders.
const (
	Agent    Sender = iota // an operator may send it, too
	Operator               // to the agent it does not exist
)

// String returns "agent" or "operator".
func (s Sender) String() string { return word(syntax.Senders, s) }

// MarshalText returns the sender's word, for JSON.
func (s Sender) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Outcome is what became of one request that was sent upstream. The zero value
// is no outcome; Next refuses it. Those behind Unknown have names that the alternative
// gives them by which the call went: see [Alternative.OutcomeName].
type Outcome uint8

// The outcomes of a request.
const (
	_       Outcome = iota
	Success         // a result without isError: true
	Error           // isError: true, or a JSON-RPC error
	Unknown         // sent, and no readable answer: it may have happened
)

// maxOutcomes is how many outcomes with a name an alternative may have.
const maxOutcomes = 64

// named is the outcome that an alternative has in a place of its own.
func named(place int) Outcome { return Unknown + 1 + Outcome(place) }

// AllOutcomes lists every outcome that calls have whatever the policy says.
var AllOutcomes = [len(syntax.Outcomes)]Outcome{Success, Error, Unknown}

// String returns "success", "error" or "unknown".
func (o Outcome) String() string {
	if o.valid() && o <= Unknown {
		return syntax.Outcomes[o.Index()]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// MarshalText returns the outcome's word, for JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// valid reports whether o is an outcome.
func (o Outcome) valid() bool { return o >= Success }

// Index returns o's place among the outcomes of an alternative; o must be one.
func (o Outcome) Index() int { return int(o - Success) }

// State is the index of a state among the policy's states, in the file's order.
// It means nothing without the policy that it comes from.
type State int32

// Configuration is what a run rests in: a state, and whether the run is
// complete. It is comparable.
type Configuration struct {
	State    State
	Complete bool
	origins  origins // none, where nothing that returns was entered
}

// Symbol is what was asked for: a name of a kind, and the name of the case that its
// argument selected, if its binding is split by one: a glob's is the glob; and the place of
// the alternative by which it goes, from 0. It is comparable.
type Symbol struct {
	Kind        Kind
	Alternative uint32
	Name        string
	Case        string
}

// Rule is where a binding stands in the policy file, so that every verdict can
// say why. Line and Column count from 1, columns in characters.
type Rule struct {
	File         string
	Line, Column int
	Pattern      string
}

// String returns "file:line:column", or "" for the zero Rule.
func (r Rule) String() string {
	if r.Line == 0 {
		return ""
	}
	return r.File + ":" + strconv.Itoa(r.Line) + ":" + strconv.Itoa(r.Column)
}

// Place returns where the rule stands in its file.
func (r Rule) Place() Place { return Place{Line: r.Line, Column: r.Column, File: r.File} }

// Compare orders rules by their file, and their place in it.
func (r Rule) Compare(o Rule) int {
	return cmp.Or(cmp.Compare(r.File, o.File), cmp.Compare(r.Line, o.Line), cmp.Compare(r.Column, o.Column))
}

// Everywhere is no state: it stands for what is bound in every state, and, as a target,
// for the state in which an edge is taken. An edge of everywhere is one value for all
// states.
const Everywhere State = -1

// Target is where one outcome leads.
type Target struct {
	State    State // or Everywhere, which stays, or Origin
	Terminal bool  // the edge says so, or its state does
	Of       int32 // to Origin, what returns: a state's or part's id and 1; 0: the policy's own state that the run is in
}

// Changes reports whether an edge to t, taken in state s, changes the configuration.
func (t Target) Changes(s State) bool { return t.Terminal || t.In(s) != s }

// In returns the state that an edge to t enters when it is taken in s; Origin for that.
func (t Target) In(s State) State {
	if t.State == Everywhere {
		return s
	}
	return t.State
}

// Binding is one pattern bound, or unbound, in a state or everywhere.
type Binding struct {
	Rule
	Home    State // the state that binds it, or Everywhere
	Kind    Kind
	Glob    bool
	None    bool   // unbinds, and has no cases
	From    Sender // of a signal
	Says    string // a signal's description
	By      string // the argument that splits it, a dotted path, or ""
	Path    []string
	ByPlace Place  // where it is named
	Shared  string // what binds it in several states of a part: the part state, and "/" for its file's everywhere
	Cases   []Case // in the file's order; one without a name where nothing splits it

	named    map[string]*Case // by name
	texts    map[string]*Case // those that are one text, by that
	literals map[string]*Case // numbers and booleans, by [Argument]'s text
	globs    []*Case          // the more specific first
}

// Case is what a binding says of one value of the argument that splits it, or of all
// texts that a glob matches: one symbol of the alphabet.
type Case struct {
	Name     string   // as it is written, see caseName
	Value    Argument // a glob's is its pattern, the text that is hardest to match
	Glob     bool
	None     bool // refuses what it is selected by, and stays
	Doubtful bool // a text that YAML reads as something else: 0x1F, 007, null
	Place    Place
	Bare     bool // a name alone in a mapping, that stays because nothing is said

	Alternatives []Alternative // at least one; the first that applies decides
}

// Alternatives yields the alternatives of all cases.
func (b *Binding) Alternatives() iter.Seq[*Alternative] {
	return func(yield func(*Alternative) bool) {
		for i := range b.Cases {
			for j := range b.Cases[i].Alternatives {
				if !yield(&b.Cases[i].Alternatives[j]) {
					return
				}
			}
		}
	}
}

// Alternative is one way for a call to go: what has to hold for it, and where its outcomes
// lead. Of several the first decides whose guards are true.
type Alternative struct {
	Place     Place
	For       []Audience // whom it is for: all have to hold
	Guards    []Guard    // all have to hold: of those beside by, of the case, and its own
	Limits    Limits     // likewise
	Because   []string   // what a client is told where one of them does not let a call go
	Approve   *Approve   // who has to say yes to each call; nil: nobody
	Exclusive bool       // takes the turn though it stays
	// Irreversible tells that no fork of a run goes back behind a call: what it has done stays done.
	Irreversible bool
	// Timeout is how many seconds the answer may take, the shorter of that beside by and that of the case, in place of what
	// holds for all calls; 0: that does.
	Timeout  int
	Outcomes []NamedOutcome

	edges     []edge // by [Outcome.Index]
	sets      bool   // something is set
	registers bool   // and on registers
	late      bool   // an outcome, or what is set, hangs on the result
	changes   bool   // something is set that has to be set in the turn, or is read by who sets it
}

// Limits are how often something may be done: in a run, and by a principal in all of its runs.
type Limits struct {
	Own, Principal []limit.Limit
}

// none reports whether there are none.
func (l *Limits) none() bool { return len(l.Own)+len(l.Principal) == 0 }

// Guard is a condition on a call.
type Guard struct {
	*guard.Program
	Place Place

	followsRun bool           // it hangs on the run that it is evaluated in
	who        *guard.Program // what lists follow of it that hangs on who asks; nil: nothing
	followed   int            // the place among the policy's followed of what lists follow of it; -1: nothing
}

// NamedOutcome is an outcome that the result decides.
type NamedOutcome struct {
	*guard.Program
	Name  string
	Place Place
}

// edge is where one outcome of an alternative leads.
type edge struct {
	Target
	given bool         // has an edge of its own, or on_any's
	place Place        // of the key that says so, or that it takes its target from; zero: nothing is said
	exits []Place      // by which it leads out of parts
	event string       // its name on the machines
	set   []Assignment // in the file's order
}

// AllOutcomes returns every outcome that a call may have: those of all calls, and then those
// that have a name, in the file's order.
func (a *Alternative) AllOutcomes() []Outcome {
	out := slices.Clone(AllOutcomes[:])
	for i := range a.Outcomes {
		out = append(out, named(i))
	}
	return out
}

// OutcomeName returns the name of an outcome, "" if there is no such outcome here.
func (a *Alternative) OutcomeName(o Outcome) string {
	switch i := o.Index() - len(AllOutcomes); {
	case o.valid() && i < 0:
		return o.String()
	case o.valid() && i < len(a.Outcomes):
		return a.Outcomes[i].Name
	}
	return ""
}

// Leads returns where an outcome leads.
func (a *Alternative) Leads(o Outcome) Target { return a.edges[o.Index()].Target }

// Says reports whether the file says where an outcome leads.
func (a *Alternative) Says(o Outcome) bool { return a.edges[o.Index()].given }

// Sets returns what an outcome does to registers, in the file's order.
func (a *Alternative) Sets(o Outcome) []Assignment { return a.edges[o.Index()].set }

// Leaves reports whether some edge, taken in state s, changes the configuration.
func (a *Alternative) Leaves(s State) bool {
	return slices.ContainsFunc(a.edges, func(e edge) bool { return e.Changes(s) })
}

// Completes reports whether some edge is terminal.
func (a *Alternative) Completes() bool {
	return slices.ContainsFunc(a.edges, func(e edge) bool { return e.Terminal })
}

// turn reports whether a call along these edges takes the run's turn in state s.
func (a *Alternative) turn(s State) bool { return a.Exclusive || a.changes || a.Leaves(s) }

// steady reports whether what is allowed, and what comes of it, hangs on nothing of the run.
func (a *Alternative) steady() bool {
	return !a.Remembers() && len(a.For) == 0 && a.Limits.none() && a.Approve == nil && !slices.ContainsFunc(a.Guards, func(g Guard) bool { return g.followsRun })
}

// holds evaluates the guards; where no run is looked at, only those that follow none. One that
// cannot be evaluated does not hold, and permits none of the alternatives behind this one; the
// error says why.
func (a *Alternative) holds(q *Request, anyRun bool) (bool, error) {
	for _, g := range a.Guards {
		switch {
		case anyRun && g.followsRun:
			continue
		case q.Facts == nil:
			return false, errNoFacts
		}
		if ok, err := g.Holds(q.Facts); !ok {
			return false, err
		}
	}
	return true, nil
}

var errNoFacts = errors.New("nothing is known of the call")

// Outcome returns which outcome a result is, of a call that ended as o: the first named one
// whose condition is true, else o. A success of which that cannot be said is unknown, an error
// an error; the error says why.
func (a *Alternative) Outcome(o Outcome, facts *guard.Call) (Outcome, error) {
	for i, x := range a.Outcomes {
		switch ok, err := x.Holds(facts); {
		case err != nil && o == Success:
			return Unknown, err
		case err != nil:
			return o, err
		case ok:
			return named(i), nil
		}
	}
	return o, nil
}

// Late reports whether what follows a call hangs on its result.
func (a *Alternative) Late() bool { return a.late }

// LateByRegisters reports whether what hangs on the result hangs on registers as well.
func (a *Alternative) LateByRegisters() bool { return a.registers }

// Remembers reports whether something is set.
func (a *Alternative) Remembers() bool { return a.sets }

// Settles reports whether what becomes of a call has a name, or changes anything, though the
// state stays.
func (a *Alternative) Settles() bool { return a.sets || a.late }

// reasons returns what is told where no alternative holds of those that are for who asks, each text once.
func reasons(alternatives []Alternative, who *guard.Who) (out []string) {
	for i := range alternatives {
		if !fits(who, alternatives[i].For...) {
			continue
		}
		for _, text := range alternatives[i].Because {
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// Select returns the case that an argument selects, nil if there is none: the very value,
// else, of a text, the most specific glob. A case that is none stands for that refusal.
// Where nothing splits b, and it binds, its one case is selected by all.
func (b *Binding) Select(a Argument) *Case {
	switch {
	case b.By == "":
		return &b.Cases[0]
	case a.kind != TextValue:
		return b.literals[a.text]
	}
	if c, ok := b.texts[a.text]; ok {
		return c
	}
	for _, c := range b.globs {
		if c.Matches(a) {
			return c
		}
	}
	return nil
}

// Matches reports whether an argument is a text that the case, a glob, stands for. None
// with a NUL is: a reader of C strings would take what is in front of it for the whole.
func (c *Case) Matches(a Argument) bool {
	return a.kind == TextValue && strings.IndexByte(a.text, 0) < 0 && matchGlob(c.Value.text, a.text)
}

// Case returns the case of a name, nil if there is none; where nothing splits b, and it
// binds, every name is that of its one case.
func (b *Binding) Case(name string) *Case {
	if b.By == "" {
		return &b.Cases[0]
	}
	return b.named[name]
}

// Like returns the case of b that is written for the very texts, number or boolean for
// which another binding's case is, nil if there is none.
func (b *Binding) Like(c *Case) *Case {
	if b.By == "" || c.Value.kind == TextValue {
		return b.Case(c.Name)
	}
	return b.literals[c.Value.text]
}

// offered reports whether b binds its names for the agent.
func (b *Binding) offered() bool { return b.offers(Agent) }

// offers reports whether b binds its names for who asks: an operator may send every signal.
func (b *Binding) offers(from Sender) bool { return !b.None && (b.From == Agent || from == Operator) }

// Matches reports whether a name lies in the language of b's pattern.
func (b *Binding) Matches(name string) bool { return matchGlob(b.Pattern, name) }

// layer is what one place, a state or everywhere, binds of one kind.
type layer struct {
	order  []*Binding          // all, in the file's order
	exact  map[string]*Binding // by name
	globs  []*Binding          // the more specific first
	byGlob map[string]*Binding // by pattern, apart from exact: a client may well send "read_*"
}

// glob returns the most specific glob of the layer that matches, or nil.
func (l *layer) glob(name string) *Binding {
	for _, b := range l.globs {
		if b.Matches(name) {
			return b
		}
	}
	return nil
}

// find returns the binding of exactly this pattern, or nil.
func (l *layer) find(pattern string) *Binding {
	if b, ok := l.exact[pattern]; ok {
		return b
	}
	return l.byGlob[pattern]
}

// stateEntry is one state of the table.
type stateEntry struct {
	StateInfo
	own      [symbolKinds]layer
	class    [Kinds]int32 // equal for states that show the same, as far as lists follow no guard; 0 shows nothing
	audience []Audience   // to whom it binds anything; none: to all
	limits   Limits       // of its visits, and more
	after    After
	may      UpstreamMay // what the upstream may ask in it: all, where the state does not say
	follows  []int       // places among the policy's followed of what lists follow here

	returning []int32 // indexes among returnTable.all: the parts that it is in, and itself, if something returns from them

	running, completed string // its names on the machines
}

// lookup returns the binding that applies to a name in a state: the exact name
// before globs, then the more specific glob, and between equals the state's own.
// It returns nil for a name that nothing binds; `none` is a binding.
func (p *Policy) lookup(s State, k Kind, name string, listed bool) *Binding {
	st := &p.states[s]
	own := &st.own[k]
	if b, ok := own.exact[name]; ok {
		return b
	}
	if st.Inherits {
		if b, ok := p.everywhere[k].exact[name]; ok {
			return b
		}
	}
	if !listed {
		return nil
	}
	b := own.glob(name)
	if st.Inherits {
		if e := p.everywhere[k].glob(name); e != nil && (b == nil || compareGlobs(e.Pattern, b.Pattern) < 0) {
			return e
		}
	}
	return b
}

// isFor reports whether what a state binds is for who asks: else it is as if it were not there.
func (p *Policy) isFor(s State, b *Binding, who *guard.Who) bool {
	return !p.asksWho || p.fits(s, b, who)
}

// bound returns the binding under which a name is bound for the agent in a state, after
// precedence and none, or nil.
func (p *Policy) bound(s State, k Kind, name string, listed bool, who *guard.Who) *Binding {
	if b := p.lookup(s, k, name, listed); b != nil && b.offered() && p.isFor(s, b, who) {
		return b
	}
	return nil
}

// Binding returns the binding under which a name is bound in c, after precedence and
// none, nil if it is not; an operator's signals are bound here, too. listed is as for Decide. A glob stands for itself as the name
// that is hardest to match: see includes.
func (p *Policy) Binding(c Configuration, k Kind, name string, listed bool) *Binding {
	if c.Complete || !p.has(c.State) || int(k) >= symbolKinds {
		return nil
	}
	if b := p.lookup(c.State, k, name, listed); b != nil && !b.None {
		return b
	}
	return nil
}

// BindingsIn returns what a state, or Everywhere, binds itself, `none` included, in the
// file's order.
func (p *Policy) BindingsIn(home State, k Kind) []*Binding { return p.layer(home, k).order }

func (p *Policy) layer(home State, k Kind) *layer {
	if home == Everywhere {
		return &p.everywhere[k]
	}
	return &p.states[home].own[k]
}

// Bindings yields what BindingsIn returns for Everywhere and for each state.
func (p *Policy) Bindings() iter.Seq[*Binding] {
	return func(yield func(*Binding) bool) {
		for home := Everywhere; int(home) < len(p.states); home++ {
			for _, k := range SymbolKinds {
				for _, b := range p.layer(home, k).order {
					if !yield(b) {
						return
					}
				}
			}
		}
	}
}

// Effective yields every binding, `none` included, that has a say in a state: its own,
// and everywhere's but for patterns that the state binds itself.
func (p *Policy) Effective(s State) iter.Seq[*Binding] {
	return func(yield func(*Binding) bool) {
		for _, k := range SymbolKinds {
			for _, b := range p.states[s].own[k].order {
				if !yield(b) {
					return
				}
			}
			for _, b := range p.everywhere[k].order {
				if p.Takes(s, b) && !yield(b) {
					return
				}
			}
		}
	}
}

// Takes reports whether a binding of everywhere has a say in a state.
func (p *Policy) Takes(s State, b *Binding) bool {
	st := &p.states[s]
	return st.Inherits && st.own[b.Kind].find(b.Pattern) == nil
}

// enterClasses gives states that bind the same names of a kind the same class.
// States that bind nothing have class 0.
func (p *Policy) enterClasses(k Kind) {
	classes := map[string]int32{"": 0}
	for s := range p.states {
		key := p.shown(&p.states[s], k)
		class, known := classes[key]
		if !known {
			class = int32(len(classes))
			classes[key] = class
		}
		p.states[s].class[k] = class
	}
}

// shown returns a text that is equal for states that bind the same patterns, under the same
// guards that lists follow: what a state binds itself and everywhere does not, and whether it
// takes everywhere's.
func (p *Policy) shown(st *stateEntry, k Kind) string {
	all := &p.everywhere[k]
	var parts []string
	if st.Inherits && slices.ContainsFunc(all.order, func(b *Binding) bool { return !b.None || b.unbindsIn(&st.own[k]) }) {
		parts = append(parts, "everywhere")
	}
	for _, b := range st.own[k].order {
		var same *Binding
		if st.Inherits {
			same = all.find(b.Pattern)
		}
		switch {
		case same != nil && same.None == b.None && same.followed() == b.followed():
		case b.None && !b.unbindsIn(&st.own[k]) && !(st.Inherits && b.unbindsIn(all)):
		case b.None:
			parts = append(parts, "-"+b.Pattern)
		default:
			parts = append(parts, "+"+b.Pattern+b.followed())
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00")
}

// followed is a text that is equal for bindings whose names lists show under the same guards.
func (b *Binding) followed() string {
	var all []byte
	for a := range b.Alternatives() {
		for _, g := range a.Guards {
			all = fmt.Appendf(all, "\x01%d", g.followed)
		}
		all = append(all, 2)
	}
	return string(all)
}

// shows reports whether lists have b's names where the guards hold that they follow: some
// alternative may let a call go.
func (b *Binding) shows(v *View) bool {
	for a := range b.Alternatives() {
		hides := func(g Guard) bool {
			return v.Holds != "" && g.followed >= 0 && v.Holds[g.followed] != '1' || g.who != nil && !fits(v.Who, Audience{Program: g.who})
		}
		if (len(a.For) == 0 || fits(v.Who, a.For...)) && !slices.ContainsFunc(a.Guards, hides) {
			return true
		}
	}
	return false
}

// unbindsIn reports whether a none takes something away that another pattern of a
// layer would bind.
func (b *Binding) unbindsIn(l *layer) bool {
	meets := func(other *Binding) bool { return !other.None && intersects(other.Pattern, b.Pattern) }
	if b.Glob {
		return slices.ContainsFunc(l.order, meets)
	}
	same := l.exact[b.Pattern]
	return same != nil && !same.None || slices.ContainsFunc(l.globs, meets)
}

// enterExact gathers the exact names that some state binds for the agent. What a state names
// itself is bound there; what everywhere names may be unbound in each state.
func (p *Policy) enterExact(k Kind) {
	var all []*Binding
	for b := range p.Bindings() {
		if b.Kind == k && !b.Glob && b.offered() && (b.Home != Everywhere || p.BoundAnywhere(k, b.Pattern, false)) {
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b *Binding) int { return a.Compare(b.Rule) })
	seen := map[string]bool{}
	for _, b := range all {
		if !seen[b.Pattern] {
			seen[b.Pattern] = true
			p.exact[k] = append(p.exact[k], b.Pattern)
		}
	}
}
