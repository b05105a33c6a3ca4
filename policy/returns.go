package policy

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"sync"
	"unique"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Origin, as a target, is where what returns was entered from: the state in which the edge
// is taken, or a part that it is a state of.
const Origin State = -2

// returning is a state, or a part, that some edge returns from.
type returning struct {
	name  string
	id    int32 // of a state its index, of a part the number of states and its index
	place Place // of a binding that returns
}

// returnTable is what returns in a policy, in the order in which it is found.
type returnTable struct {
	all  []returning
	once sync.Once
	from [][]State // see enteredFrom
}

// origins is where states and parts that return were entered from, as far as a run can still
// return there: pairs of an index among returnTable.all and a state, four bytes each, in
// order. Equal ones are ==, and it takes a word in each configuration. The zero value is none.
type origins struct{ unique.Handle[string] }

// origin is one pair.
type origin struct {
	of   int32 // index among returnTable.all
	from State
}

func (o origins) pairs() (all []origin) {
	if o == (origins{}) {
		return nil
	}
	for text := []byte(o.Value()); len(text) >= 8; text = text[8:] {
		all = append(all, origin{int32(binary.BigEndian.Uint32(text)), State(binary.BigEndian.Uint32(text[4:]))})
	}
	return all
}

func originsOf(pairs []origin) origins {
	if len(pairs) == 0 {
		return origins{}
	}
	slices.SortFunc(pairs, func(a, b origin) int { return int(a.of - b.of) })
	text := make([]byte, 0, 8*len(pairs))
	for _, x := range pairs {
		text = binary.BigEndian.AppendUint32(text, uint32(x.of))
		text = binary.BigEndian.AppendUint32(text, uint32(x.from))
	}
	return origins{unique.Make(string(text))}
}

// from returns where a state or part was entered from, if that is known.
func from(pairs []origin, of int32) (State, bool) {
	for _, x := range pairs {
		if x.of == of {
			return x.from, true
		}
	}
	return 0, false
}

// Origins returns the states and parts from which a run in c can return, now or once it has
// returned, and where to.
func (p *Policy) Origins(c Configuration) map[string]string {
	pairs := c.origins.pairs()
	if len(pairs) == 0 {
		return nil
	}
	out := make(map[string]string, len(pairs))
	for _, x := range pairs {
		out[p.returns.all[x.of].name] = p.StateName(x.from)
	}
	return out
}

// unitOf is what an edge to Origin returns from, when it is taken in s: a state's or part's id.
func (p *Policy) unitOf(t Target, s State) int32 {
	if t.Of > 0 {
		return t.Of - 1
	}
	if chain := p.units(s); len(chain) > 0 {
		return chain[0]
	}
	return int32(s)
}

// units are the ids of the parts that a state is in, the outermost first, and its own.
func (p *Policy) units(s State) []int32 {
	ids := []int32{int32(s)}
	for name := p.states[s].Part; name != ""; {
		i := p.parts.index[name]
		ids = append(ids, int32(len(p.states)+i))
		name = p.parts.all[i].Within
	}
	slices.Reverse(ids)
	return ids
}

// returnsIn is the index among returning of what an edge to Origin returns from in s.
func (p *Policy) returnsIn(t Target, s State) int32 {
	id := p.unitOf(t, s)
	return int32(slices.IndexFunc(p.returns.all, func(r returning) bool { return r.id == id }))
}

// rest is where a run rests that has gone from c to a state; returned is whether by an edge
// to Origin, which is no entering that is remembered.
func (p *Policy) rest(c Configuration, to State, returned bool) Configuration {
	within := p.states[to].returning
	if len(within) == 0 {
		return Configuration{State: to}
	}
	pairs := c.origins.pairs()
	if !returned {
		for _, of := range within {
			if slices.Contains(p.states[c.State].returning, of) {
				continue
			}
			pairs = slices.DeleteFunc(pairs, func(x origin) bool { return x.of == of })
			pairs = append(pairs, origin{of, c.State})
		}
	}
	return Configuration{State: to, origins: p.reachable(pairs, to)}
}

// reachable are the pairs that a run in a state can return by, now or once it has returned.
func (p *Policy) reachable(pairs []origin, s State) origins {
	var kept []origin
	todo := slices.Clone(p.states[s].returning)
	for len(todo) > 0 {
		of := todo[0]
		todo = todo[1:]
		o, known := from(pairs, of)
		if _, done := from(kept, of); !known || done {
			continue
		}
		kept = append(kept, origin{of, o})
		todo = append(todo, p.states[o].returning...)
	}
	return originsOf(kept)
}

// originIn is where an edge to Origin leads from c: to the initial state, where that is not known.
func (p *Policy) originIn(c Configuration, t Target) State {
	if s, ok := from(c.origins.pairs(), p.returnsIn(t, c.State)); ok {
		return s
	}
	return p.initial
}

// adoptOrigins are the origins of a run that rests in c of old, and in s of p.
func (p *Policy) adoptOrigins(old *Policy, c Configuration, s State) origins {
	var pairs []origin
	for _, x := range c.origins.pairs() {
		of := p.heirOfReturning(old.returns.all[x.of].name)
		to, ok := p.Heir(old.states[x.from].Name)
		if of >= 0 && ok && !p.states[to].Terminal && !slices.Contains(p.states[to].returning, of) {
			pairs = append(pairs, origin{of, to})
		}
	}
	return p.reachable(pairs, s)
}

// heirOfReturning is the index of what takes the place of what returned in another policy,
// negative if nothing does.
func (p *Policy) heirOfReturning(name string) int32 {
	candidates := []string{p.parts.renames[name], name}
	if s, ok := p.renames[name]; ok {
		candidates = append(candidates, p.states[s].Name)
	}
	for _, heir := range candidates {
		if of := slices.IndexFunc(p.returns.all, func(r returning) bool { return r.name == heir }); of >= 0 {
			return int32(of)
		}
	}
	return -1
}

// Returns names the state or part from which an edge to Origin returns, when it is taken in
// s; "" for the state that a run is in, whichever that is.
func (p *Policy) Returns(t Target, s State) string {
	if s == Everywhere && t.Of == 0 {
		return ""
	}
	return p.unitName(p.unitOf(t, s))
}

// ReturnsTo returns the states that an edge to Origin may lead to, when it is taken in s and
// no reload has taken one: those from which the state, or part, is entered.
func (p *Policy) ReturnsTo(t Target, s State) []State { return p.enteredFrom()[p.returnsIn(t, s)] }

// enteredFrom are the states from which an edge enters what returns, by its index.
func (p *Policy) enteredFrom() [][]State {
	p.returns.once.Do(func() {
		p.returns.from = make([][]State, len(p.returns.all))
		p.enterings(func(s, to State, of int32) {
			all := p.returns.from[of]
			if n := len(all); n == 0 || all[n-1] != s {
				p.returns.from[of] = append(all, s)
			}
		})
	})
	return p.returns.from
}

// enterings calls f for each edge, taken in s, by which a state or part that returns is entered
// from outside of it.
func (p *Policy) enterings(f func(s, to State, of int32)) {
	for i := range p.states {
		s := State(i)
		seen := map[State]bool{}
		for e := range p.edgesIn(s) {
			to := e.In(s)
			if e.Terminal || e.State == Origin || to == s || seen[to] {
				continue
			}
			seen[to] = true
			for _, of := range p.states[to].returning {
				if !slices.Contains(p.states[s].returning, of) {
					f(s, to, of)
				}
			}
		}
	}
}

// edgesIn yields the edges that can be taken in a state, its clock's too, with what has them.
func (p *Policy) edgesIn(s State) iter.Seq2[*edge, Place] {
	return func(yield func(*edge, Place) bool) {
		for b := range p.Effective(s) {
			for a := range b.Alternatives() {
				for i := range a.edges {
					if !yield(&a.edges[i], b.Place()) {
						return
					}
				}
			}
		}
		if after := p.After(s); after != nil {
			yield(&after.edge, after.Rule.Place())
		}
	}
}

// enterReturns gathers what returns, and reports returns that lead nowhere.
func (c *compiler) enterReturns() {
	p := c.p
	index := map[int32]int32{}
	for i := range p.states {
		s := State(i)
		for e, place := range p.edgesIn(s) {
			if e.State != Origin {
				continue
			}
			id := p.unitOf(e.Target, s)
			if _, known := index[id]; !known {
				index[id] = int32(len(p.returns.all))
				p.returns.all = append(p.returns.all, returning{p.unitName(id), id, place})
			}
		}
	}
	if len(p.returns.all) == 0 {
		return
	}
	for i := range p.states {
		for _, id := range p.units(State(i)) {
			if of, returns := index[id]; returns {
				p.states[i].returning = append(p.states[i].returning, of)
			}
		}
	}
	for _, of := range p.states[p.initial].returning {
		r := p.returns.all[of]
		c.r.Errorf(r.place, "return", "return: runs begin in %s, so nothing is before %s to return to; name the state that it leads to",
			strictyaml.Quote(p.StateName(p.initial)), strictyaml.Quote(r.name))
	}
	if c.r.OK() {
		c.checkReturns()
	}
}

func (p *Policy) unitName(id int32) string {
	if n := len(p.states); int(id) >= n {
		return p.parts.all[int(id)-n].Name
	}
	return p.states[id].Name
}

// checkReturns reports states and parts that return and can enter each other: from there
// runs would return to each other for ever.
func (c *compiler) checkReturns() {
	p := c.p
	next := make([]map[int32]bool, len(p.returns.all))
	p.enterings(func(s, to State, of int32) {
		for _, before := range p.states[s].returning {
			if before != of && !slices.Contains(p.states[to].returning, before) {
				if next[before] == nil {
					next[before] = map[int32]bool{}
				}
				next[before][of] = true
			}
		}
	})
	const open, done = 1, 2
	mark := make([]int, len(next))
	var path []int32
	var walk func(at int32) bool
	walk = func(at int32) bool {
		mark[at], path = open, append(path, at)
		for _, to := range slices.Sorted(maps.Keys(next[at])) {
			if mark[to] == open {
				path = path[slices.Index(path, to):]
				return true
			}
			if mark[to] == 0 && walk(to) {
				return true
			}
		}
		mark[at], path = done, path[:len(path)-1]
		return false
	}
	for of := range next {
		if mark[of] == 0 && walk(int32(of)) {
			names := make([]string, len(path))
			for i, at := range path {
				names[i] = p.returns.all[at].name
			}
			last := p.returns.all[path[len(path)-1]]
			c.r.Errorf(last.place, "return", "return: %s return, and each can be entered from another, so that runs would go round and never get back to what was before; let one lead to a state by its name, or not be entered from there",
				strictyaml.And(names))
			return
		}
	}
}

// enterParts enters the part states.
func (c *compiler) enterParts() {
	c.p.parts.index, c.p.parts.renames = map[string]int{}, map[string]string{}
	for i, s := range c.f.Standings {
		c.p.parts.index[s.Name] = i
		c.p.parts.all = append(c.p.parts.all, Part{Name: s.Name, Within: s.Within, Description: s.Description, File: s.Source, Place: s.Place})
	}
	for _, x := range c.f.RenamedParts {
		c.p.parts.renames[x.Old.Value] = x.New.Value
	}
}

// unit is what a target in the file returns from, as Target has it.
func (c *compiler) unit(name string) int32 {
	if i, ok := c.p.byName[name]; ok {
		return int32(i) + 1
	}
	if i, ok := c.p.parts.index[name]; ok {
		return int32(len(c.p.states)+i) + 1
	}
	return 0
}

// Configuration returns the configuration of a state by its name, with what [Policy.Origins] has said of it; ok is false
// where the policy has no such state, or nothing that returns from such a place.
func (p *Policy) Configuration(state string, complete bool, returns map[string]string) (c Configuration, ok bool) {
	s, ok := p.byName[state]
	if !ok {
		return c, false
	}
	var pairs []origin
	for name, from := range returns {
		of := slices.IndexFunc(p.returns.all, func(r returning) bool { return r.name == name })
		to, known := p.byName[from]
		if of < 0 || !known {
			return c, false
		}
		pairs = append(pairs, origin{int32(of), to})
	}
	return Configuration{State: s, Complete: complete, origins: originsOf(pairs)}, true
}
