package policy

// here is the target of an edge that stays: an edge of everywhere is one value
// for all states, so "this state" is not known until it is taken.
const here State = -1

// target is where one outcome leads.
type target struct {
	state    State // or here
	terminal bool  // the edge says so, or its state does
}

// edges are where the three outcomes of one symbol lead.
type edges struct {
	to    [outcomes]target
	event [outcomes]string // the event's name on the machines

	exclusive bool // takes the turn though it stays
	stated    stated
}

// stated is what the file said of an edge, for findings and pictures.
type stated struct {
	// explicit is whether the outcome has an edge of its own, or on_any's.
	explicit [outcomes]bool
	// bare is a name alone in a mapping, that stays because nothing is said.
	bare bool
}

// changes reports whether the edge, taken in state s, changes the configuration.
func (t target) changes(s State) bool {
	return t.terminal || (t.state != here && t.state != s)
}

// in returns the state that the edge enters when it is taken in s.
func (t target) in(s State) State {
	if t.state == here {
		return s
	}
	return t.state
}

// leaves reports whether some edge, taken in state s, changes the configuration.
func (e *edges) leaves(s State) bool {
	return e.to[0].changes(s) || e.to[1].changes(s) || e.to[2].changes(s)
}

// turn reports whether a call along these edges takes the run's turn in state s.
func (e *edges) turn(s State) bool { return e.exclusive || e.leaves(s) }

// binding is one pattern given in a state or in everywhere.
type binding struct {
	rule   Rule
	home   State // the state that it is given in, here for everywhere
	kind   Kind
	glob   bool
	none   bool              // unbinds
	by     string            // the argument that splits it, or ""
	byAt   at                // where it is named
	edges  edges             // where by is ""
	cases  []caseEdges       // where by is not "", in the file's order
	caseOf map[string]*edges // the same by the argument's text
}

// caseEdges is one case of a split binding.
type caseEdges struct {
	text string
	at   at
	edges
}

// each calls f for the edges of every case, or for the only ones.
func (b *binding) each(f func(text string, e *edges)) {
	if b.none {
		return
	}
	if b.by == "" {
		f("", &b.edges)
		return
	}
	for i := range b.cases {
		f(b.cases[i].text, &b.cases[i].edges)
	}
}

// layer is what one place, a state or everywhere, binds of one kind.
type layer struct {
	order  []*binding          // all, in the file's order
	exact  map[string]*binding // by name
	globs  []*binding          // the more specific first
	byGlob map[string]*binding // by pattern, apart from exact: a client may well send "read_*"
}

// glob returns the most specific glob of the layer that matches, or nil.
func (l *layer) glob(name string) *binding {
	for _, b := range l.globs {
		if matchGlob(b.rule.Pattern, name) {
			return b
		}
	}
	return nil
}

// find returns the binding of exactly this pattern, or nil.
func (l *layer) find(pattern string) *binding {
	if b, ok := l.exact[pattern]; ok {
		return b
	}
	return l.byGlob[pattern]
}

// stateEntry is one state of the table.
type stateEntry struct {
	StateInfo
	place    Rule // where its name stands
	inherits bool // takes what everywhere binds
	own      [Kinds]layer
	class    [Kinds]int32 // equal for states that show the same; 0 shows nothing

	running, completed string // its names on the machines
}

// effective calls f for every binding, none included, that has a say in a state:
// its own, and everywhere's but for patterns that the state gives itself.
func (p *Policy) effective(s State, f func(*binding)) {
	st := &p.states[s]
	for k := range Kinds {
		for _, b := range st.own[k].order {
			f(b)
		}
		if !st.inherits {
			continue
		}
		for _, b := range p.everywhere[k].order {
			if st.own[k].find(b.rule.Pattern) == nil {
				f(b)
			}
		}
	}
}

// lookup returns the binding that holds for a name in a state: the exact name
// before globs, then the more specific glob, and between equals the state's own.
// It returns nil for a name that nothing binds; `none` is a binding.
func (p *Policy) lookup(s State, k Kind, name string, listed bool) *binding {
	st := &p.states[s]
	own := &st.own[k]
	if b, ok := own.exact[name]; ok {
		return b
	}
	if st.inherits {
		if b, ok := p.everywhere[k].exact[name]; ok {
			return b
		}
	}
	if !listed {
		return nil
	}
	b := own.glob(name)
	if st.inherits {
		if e := p.everywhere[k].glob(name); e != nil && (b == nil || moreSpecific(e, b)) {
			return e
		}
	}
	return b
}

// moreSpecific orders globs that match one name: see compareGlobs.
func moreSpecific(a, b *binding) bool {
	return compareGlobs(a.rule.Pattern, b.rule.Pattern) < 0
}
