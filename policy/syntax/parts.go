package syntax

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Use is one entry of use: a part's name in this file, and the file that it is.
type Use struct{ Name, File Text }

// Exit is one entry of a part state's exits. The name AllExits is every other's.
type Exit struct {
	Name Text
	To   Target
}

// AllExits is the name, in exits, of every exit that is not named.
const AllExits = "*"

// HasParts reports whether the file says anything of parts.
func (f *File) HasParts() bool {
	return len(f.Use) > 0 || slices.ContainsFunc(f.States, func(s State) bool { return s.Part.Given })
}

// partKeys are the keys of a state that stand for a part.
func partKeys() []field[State] {
	return []field[State]{
		key("part", "The part, of use, that stands for this state.", textSchema, func(r *reader, e entry, into *State) {
			into.Part, _ = name(r, e, "the name of a part")
		}),
		key("exits", "Where the part's terminal edges lead, by the names of their targets; * is every other.", exitsSchema, readExits),
	}
}

func exitsSchema() *schema {
	return &schema{AnyOf: []*schema{
		textSchema(),
		{Type: "object", AdditionalProperties: refTo("exit")(), MinProperties: 1},
	}}
}

// exitKeys are the keys of an exit's target: those of an edge that say where it leads.
func exitKeys() []field[Target] {
	return slices.DeleteFunc(targetKeys(), func(f field[Target]) bool { return f.Name != "to" && f.Name != "terminal" && f.Name != "return" })
}

func readUse(r *reader, e entry, into *File) {
	if !r.Mapping(e, "a mapping of names to files, such as {review: review.yaml}") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if t, ok := name(r, x, "the path of a policy file"); ok && checkName(r, x.Key, "a part") {
			into.Use = append(into.Use, Use{keyText(x), t})
		}
	}
}

func readExits(r *reader, e entry, into *State) {
	into.HasExits = true
	if e.Value.Kind != yaml.MappingNode {
		if t, ok := readExit(r, e); ok {
			into.Exits = []Exit{{Text{Place: e.Place(), Value: AllExits, Given: true}, t}}
		}
		return
	}
	entries := r.Entries(e.Value)
	if len(entries) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "exits", "exits: no exit; name where the part's terminal edges lead, or leave exits out")
	}
	for _, x := range entries {
		if t, ok := readExit(r, x); ok && checkName(r, x.Key, "an exit") {
			into.Exits = append(into.Exits, Exit{keyText(x), t})
		}
	}
}

// readExit reads where one exit leads: a state, or {to, terminal}. An exit can't stay.
func readExit(r *reader, e entry) (t Target, ok bool) {
	const want = "a state, or {to: STATE, terminal: true}"
	t.Given = true
	if e.Value.Kind == yaml.MappingNode {
		strictyaml.ReadFields(r, e.Value, "an exit", exitKeys(), &t)
		checkReturn(r, e.Value, &t)
	} else {
		to, ok := name(r, e, want)
		if !ok {
			return t, false
		}
		t = targetOf(to)
	}
	if !t.To.Given && !t.Terminal && !t.Return {
		r.Errorf(strictyaml.PlaceOf(e.Value), "exits", "%s: an exit leaves the part; write %s", strictyaml.Quote(e.Name()), want)
		return t, false
	}
	return t, true
}

// besidePart are the keys that a state may have beside part.
var besidePart = []string{"part", "exits", "description", "everywhere"}

// checkPart checks which keys of a state stand together.
func checkPart(r *reader, s *State, keys []entry) {
	for _, e := range keys {
		switch {
		case !s.Part.Given && e.Name() == "exits":
			r.Errorf(e.Place(), "part", "exits: without \"part\"; name the part that is left by them")
		case !s.Part.Given || slices.Contains(besidePart, e.Name()) || slices.ContainsFunc(scopeKeys(), func(f field[Scope]) bool { return f.Name == e.Name() }):
		case e.Name() == "terminal":
			r.Errorf(e.Place(), "part", "terminal: beside \"part\"; a run is in the part's states: complete it by its exits, {NAME: {terminal: true}}")
		default:
			r.Errorf(e.Place(), "part", "%s: beside \"part\"; write it in the states of the part's file", e.Name())
		}
	}
}

// settingKeys are the keys of a file that stand for its automaton: what else it says is a
// setting, which the file of the policy alone has.
var automatonKeys = []string{"version", "initial", "everywhere", "states", "renamed", "use", "registers"}

// settings gathers the keys of a file that are settings.
func settings(keys []entry) (out []Text) {
	for _, e := range keys {
		if !slices.Contains(automatonKeys, e.Name()) {
			out = append(out, keyText(e))
		}
	}
	return out
}
