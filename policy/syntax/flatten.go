package syntax

import (
	"reflect"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Standing is a part state of a policy, or of one of its parts: a file stands for it.
type Standing struct {
	Place              // of the state
	Name        string // of the state, in the policy: "reviewing", "reviewing/inner"
	Within      string // the standing that it is in; "": it is the policy's own
	Description string
	Source      string // the part's file
}

// The most that parts may come to.
const (
	maxDepth    = 8       // how many parts are in each other
	maxStates   = 10_000  // of a policy with parts
	maxBindings = 200_000 // that parts' states have, with cases
)

// Flatten returns the policy that a file with parts is: a file without, in which the states
// of the part that stands for a state S are "S/…". What is wrong with it as a whole is in the
// reader of the policy's own file; nothing may be wrong with a file alone.
//
// A state of a part has, beside its own bindings, those that others bind for it, the nearest
// first: the part's everywhere, the part state, then the same of the part that this is a
// state of. The policy's everywhere stays what it is. Of two bindings of one pattern the
// nearer is left, so that all else is as if one place bound them. One that was bound for it
// is Shared: "S" by the part state S, "S/" by the everywhere of its file.
func Flatten(root *Module) *File {
	flat := *root.File
	flat.States, flat.Renamed, flat.Use = nil, nil, nil
	fl := &flattener{r: root.Reader, flat: &flat, names: map[string]Place{}, left: map[*State]map[string]bool{}, taken: map[Place]bool{}, under: map[string][][2]string{}}
	top := &standing{Module: root}
	flat.Everywhere = resolved(flat.Everywhere, fl.targets(top, ""))
	fl.expand(top)
	flat.Initial.Value = entryOf(root, "", flat.Initial.Value)
	fl.addRegisters()
	if !fl.full {
		fl.checkUnused()
	}
	return &flat
}

// flattener makes one file of a policy and its parts.
type flattener struct {
	r     *strictyaml.Reader
	flat  *File
	names map[string]Place // of states, and of part states
	size  int              // bindings, cases and renames that were added
	full  bool             // a limit was reached

	parts []*standing                // in their order
	left  map[*State]map[string]bool // of part states: the names by which edges leave
	taken map[Place]bool             // bindings for several states that one of them has
	under map[string][][2]string     // see namesUnder
}

// standing is a file that stands for a state, or the policy's own.
type standing struct {
	*Module
	name  string // of the state, in the policy; "": it is the policy's own file
	outer *standing
	state *State // in outer
	depth int
}

// in is the name, in the policy, of a state of the file.
func (s *standing) in(state string) string {
	if s.outer == nil {
		return state
	}
	return s.name + "/" + state
}

// find returns the state of a name, nil if there is none.
func (m *Module) find(name string) *State {
	if m.named == nil {
		m.named = make(map[string]*State, len(m.States))
		for i := range m.States {
			m.named[m.States[i].Name.Value] = &m.States[i]
		}
	}
	return m.named[name]
}

// entryOf is the state, in the policy, that an edge to a state of a file enters: where that
// is a part, the part's initial one.
func entryOf(m *Module, prefix, state string) string {
	st := m.find(state)
	if st == nil || !st.Part.Given {
		return prefix + state
	}
	part := m.Parts[st.Part.Value]
	return entryOf(part, prefix+state+"/", part.Initial.Value)
}

func (s *standing) entry(state string) string {
	return entryOf(s.Module, strings.TrimSuffix(s.in(" "), " "), state)
}

// expand adds the states of a file, and then the new names that it gives to some.
func (fl *flattener) expand(s *standing) {
	for i := range s.States {
		switch st := &s.States[i]; {
		case fl.full:
			return
		case st.Part.Given:
			fl.expandPart(s, st)
		case s.outer == nil || !st.Terminal: // a part's terminal states are its exits
			fl.addState(s, st)
		}
	}
	for _, x := range s.Renamed {
		fl.addRename(s, x)
	}
}

// expandPart adds the states of the part that stands for a state.
func (fl *flattener) expandPart(s *standing, st *State) {
	part := &standing{Module: s.Parts[st.Part.Value], name: s.in(st.Name.Value), outer: s, state: st, depth: s.depth + 1}
	if part.depth > maxDepth {
		fl.fail(st.Place, "parts are more than %d deep in each other here; join some", maxDepth)
		return
	}
	if !fl.claim(part.name, st) || !fl.claim(part.name+"/", st) { // the latter is what its everywhere is called
		return
	}
	fl.parts = append(fl.parts, part)
	fl.flat.Standings = append(fl.flat.Standings, Standing{
		Place: st.Place, Name: part.name, Within: s.name, Description: st.Description, Source: part.Reader.File(),
	})
	if fl.left[st] == nil {
		fl.left[st] = map[string]bool{}
	}
	fl.expand(part)
}

// claim takes a name for a state.
func (fl *flattener) claim(name string, st *State) bool {
	first, twice := fl.names[name]
	if twice {
		fl.r.Errorf(st.Place, "part", "%s is the name of two states, here and at %s: a part's states have its state's name and \"/\" before their own; call one of them something else",
			strictyaml.Quote(name), fl.where(first))
	}
	fl.names[name] = st.Place
	return !twice
}

// where writes a place for a message about another.
func (fl *flattener) where(a Place) string {
	f := strictyaml.Finding{File: a.File, Line: a.Line, Column: a.Column}
	if f.File == "" {
		f.File = fl.r.File()
	}
	return f.Place()
}

// fail reports that a limit was reached, once.
func (fl *flattener) fail(a Place, format string, args ...any) {
	if !fl.full {
		fl.full = true
		fl.r.Errorf(a, "too-large", format, args...)
	}
}

// grow counts what parts add.
func (fl *flattener) grow(a Place, n int) {
	if fl.size += n; fl.size > maxBindings {
		fl.fail(a, "the states of parts bind more than %d names, cases and new names of states in all; use fewer parts", maxBindings)
	}
}

func (fl *flattener) addState(s *standing, st *State) {
	if len(fl.flat.States) == maxStates {
		fl.fail(st.Place, "more than %d states, with those of parts; use fewer", maxStates)
		return
	}
	out := resolved(*st, fl.targets(s, st.Name.Value))
	out.Name.Value, out.Within = s.in(st.Name.Value), s.name
	fl.claim(out.Name.Value, st)
	if s.outer != nil {
		fl.inherit(&out, s, st)
	}
	fl.flat.States = append(fl.flat.States, out)
}

// bound tells bindings of one place apart.
type bound struct {
	kind    int
	pattern string
}

// inherit adds what others than the state itself and the policy's everywhere bind in it.
func (fl *flattener) inherit(out *State, s *standing, st *State) {
	seen := map[bound]bool{}
	for kind, entries := range out.lists() {
		for i := range *entries {
			seen[bound{kind, (*entries)[i].Name.Value}] = true
			fl.grow(st.Place, 1+len((*entries)[i].Value.Cases))
		}
	}
	for ; s.outer != nil; s, st = s.outer, s.state {
		if !st.Without {
			fl.take(out, seen, &s.File.Everywhere, s.name+"/", fl.targets(s, st.Name.Value))
		}
		fl.take(out, seen, &s.state.Scope, s.name, fl.targets(s.outer, s.state.Name.Value))
	}
	out.Without = st.Without
}

// take adds what a scope binds, and nothing nearer.
func (fl *flattener) take(out *State, seen map[bound]bool, scope *Scope, from string, targets func(any)) {
	lists := out.lists()
	for kind, entries := range scope.lists() {
		for _, e := range *entries {
			id := bound{kind, e.Name.Value}
			if seen[id] || fl.full {
				continue
			}
			seen[id], fl.taken[e.Name.Place] = true, true
			fl.grow(e.Name.Place, 1+len(e.Value.Cases))
			e = resolved(e, targets)
			e.Value.Shared = from
			*lists[kind] = append(*lists[kind], e)
		}
	}
}

// lists are what a scope binds, by kind, signals last.
func (s *Scope) lists() (all [len(Kinds) + 1]*[]Entry) {
	for i := range s.Kinds {
		all[i] = &s.Kinds[i]
	}
	all[len(Kinds)] = &s.Signals
	return all
}

// targets returns what has the edges that a file gives to one of its states lead to the
// policy's states.
func (fl *flattener) targets(s *standing, own string) func(any) {
	return func(x any) {
		switch x := x.(type) {
		case *Target:
			fl.target(s, own, x)
		case *Text:
			x.Joined = false // was looked at in the file alone
		case *Value:
			x.Null = Text{} // likewise
		}
	}
}

func (fl *flattener) target(s *standing, own string, t *Target) {
	if t.Return && s.outer != nil {
		t.Unit = s.in(own)
	}
	if !t.To.Given && !t.Terminal {
		return // it stays, or returns
	}
	name := own
	if t.To.Given {
		name = t.To.Value
	}
	st := s.find(name)
	switch {
	case s.outer != nil && (t.Terminal || st != nil && st.Terminal):
		fl.leave(s, own, name, t)
	case t.To.Given:
		t.To.Value = s.entry(name)
	}
}

// leave has a terminal edge of a part lead where the exit of its name does.
func (fl *flattener) leave(s *standing, own, name string, t *Target) {
	first := !fl.left[s.state][name]
	fl.left[s.state][name] = true
	exit := s.state.exit(name)
	if exit == nil {
		if first {
			fl.r.Errorf(s.state.Place, "exits", "state %s: its part (%s) is left by %s, from its state %s, and nothing says where that leads; write exits: {%s: STATE}, or \"*\" for every exit",
				strictyaml.Quote(s.state.Name.Value), s.Reader.File(), strictyaml.Quote(name), strictyaml.Quote(own), strictyaml.Scalar(name))
		}
		return
	}
	t.Exits = append(t.Exits, exit.Name.Place)
	t.To, t.Terminal, t.Return = exit.To.To, exit.To.Terminal, exit.To.Return
	fl.target(s.outer, s.state.Name.Value, t)
}

// exit is the exit by which edges of a name leave, nil if there is none.
func (s *State) exit(name string) (all *Exit) {
	for i := range s.Exits {
		switch s.Exits[i].Name.Value {
		case name:
			return &s.Exits[i]
		case AllExits:
			all = &s.Exits[i]
		}
	}
	return all
}

// addRename adds the new names of states. That of a part state renames its part's states.
func (fl *flattener) addRename(s *standing, x Rename) {
	old, st := s.in(x.Old.Value), s.find(x.New.Value)
	if s.outer != nil && st != nil && st.Terminal {
		return // an exit, and no state
	}
	add := func(from, to string) {
		fl.grow(x.Old.Place, 1)
		if !fl.full {
			before, after := x.Old, x.New
			before.Value, after.Value = from, to
			fl.flat.Renamed = append(fl.flat.Renamed, Rename{before, after})
		}
	}
	if st == nil || !st.Part.Given {
		add(old, s.in(x.New.Value))
		return
	}
	add(old, s.entry(x.New.Value))
	before, after := x.Old, x.New
	before.Value, after.Value = old, s.in(x.New.Value)
	fl.flat.RenamedParts = append(fl.flat.RenamedParts, Rename{before, after})
	if s.find(x.Old.Value) != nil {
		return // a state of that name became a part
	}
	for _, part := range fl.flat.Standings {
		if inner, is := strings.CutPrefix(part.Name, after.Value+"/"); is {
			was, is := x.Old, x.New
			was.Value, is.Value = old+"/"+inner, part.Name
			fl.flat.RenamedParts = append(fl.flat.RenamedParts, Rename{was, is})
			fl.grow(x.Old.Place, 1)
		}
	}
	under := s.in(x.New.Value) + "/"
	for _, x := range fl.namesUnder(under) {
		add(old+"/"+x[0], x[1])
	}
}

// namesUnder returns the names that states of a part have and had, without the part's, and the
// states.
func (fl *flattener) namesUnder(part string) (names [][2]string) {
	if known, ok := fl.under[part]; ok {
		return known
	}
	for i := range fl.flat.Renamed {
		x := fl.flat.Renamed[i]
		if _, is := fl.names[x.New.Value]; is && strings.HasPrefix(x.Old.Value, part) {
			names = append(names, [2]string{x.Old.Value[len(part):], x.New.Value})
		}
	}
	for i := range fl.flat.States {
		if name := fl.flat.States[i].Name.Value; strings.HasPrefix(name, part) {
			names = append(names, [2]string{name[len(part):], name})
		}
	}
	fl.under[part] = names
	return names
}

// addRegisters adds the registers of parts: those of one name are one.
func (fl *flattener) addRegisters() {
	known, done := map[string]Register{}, map[*Module]bool{}
	for _, x := range fl.flat.Registers {
		known[x.Name.Value] = x
	}
	fl.flat.Registers = slices.Clone(fl.flat.Registers)
	for _, s := range fl.parts {
		if done[s.Module] {
			continue
		}
		done[s.Module] = true
		for _, x := range s.Registers {
			first, twice := known[x.Name.Value]
			switch {
			case !twice:
				known[x.Name.Value] = x
				fl.flat.Registers = append(fl.flat.Registers, x)
			case first.Type.Index != x.Type.Index || first.Max != x.Max:
				fl.r.Errorf(x.Name.Place, "register", "%s is declared in another way at %s, and a run has one register of a name; declare both alike",
					strictyaml.Quote(x.Name.Value), fl.where(first.Name.Place))
			}
		}
	}
}

// checkUnused warns of exits that no edge leaves by, and of bindings that no state takes.
func (fl *flattener) checkUnused() {
	for _, s := range fl.parts {
		for _, x := range s.state.Exits {
			switch left := fl.left[s.state]; {
			case x.Name.Value == AllExits && len(left) == 0:
				fl.r.Add(strictyaml.LevelWarning, x.Name.Place, "unused", "exits: no edge leaves the part %s; lead one to a terminal state of its, or remove exits", strictyaml.Quote(s.state.Part.Value))
			case x.Name.Value != AllExits && !left[x.Name.Value]:
				fl.r.Add(strictyaml.LevelWarning, x.Name.Place, "unused", "exits: no edge leaves the part %s by %s; remove it", strictyaml.Quote(s.state.Part.Value), strictyaml.Quote(x.Name.Value))
			}
		}
		for _, scope := range []*Scope{&s.state.Scope, &s.File.Everywhere} {
			for _, entries := range scope.lists() {
				for _, e := range *entries {
					if !fl.taken[e.Name.Place] {
						fl.r.Add(strictyaml.LevelWarning, e.Name.Place, "shadowed", "%s has no effect: every state of the part gives it a value of its own, or takes nothing of everywhere; remove it", strictyaml.Quote(e.Name.Value))
					}
				}
			}
		}
	}
}

// resolved returns a copy of what a file says in which f has changed what it is given: a
// pointer to each part of it that is a struct. So what is added to the language, with places,
// texts and targets of its own, is copied and resolved like all else.
func resolved[T any](x T, f func(any)) T {
	visit(reflect.ValueOf(&x).Elem(), f)
	return x
}

// visit gives f a pointer to each struct in v, the inner ones first, and copies what v shares.
func visit(v reflect.Value, f func(any)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				visit(v.Field(i), f)
			}
		}
		f(v.Addr().Interface())
	case reflect.Array:
		for i := range v.Len() {
			visit(v.Index(i), f)
		}
	case reflect.Slice:
		if v.Len() == 0 || !holdsStructs(v.Type().Elem()) {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
		for i := range v.Len() {
			visit(v.Index(i), f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			v.Set(own)
			visit(own.Elem(), f)
		}
	case reflect.Map:
		own := reflect.MakeMap(v.Type())
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			visit(value, f)
			own.SetMapIndex(key, value)
		}
		if !v.IsNil() {
			v.Set(own)
		}
	}
}

func holdsStructs(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Slice, reflect.Array:
		return true
	}
	return false
}
