package policy

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// bindings reads what one place binds of one kind: a mapping of names to values,
// or a list of names that all stay.
func (r reader) bindings(k Kind, e entry) []bindingSource {
	switch {
	case strictyaml.IsNothing(e.Value):
		return nil
	case e.Value.Kind == yaml.MappingNode:
		return r.bindingMap(k, e.Value)
	case e.Value.Kind == yaml.SequenceNode:
		return r.bindingList(k, e)
	}
	r.WrongType(e, "a mapping of names, or a list of names that stay")
	return nil
}

func (r reader) bindingMap(k Kind, n *yaml.Node) []bindingSource {
	var out []bindingSource
	for _, e := range r.Entries(n) {
		if !r.checkPattern(k, e.Key) {
			continue
		}
		b := bindingSource{pattern: keyText(e), value: r.value(e)}
		b.pattern.joined = strictyaml.IsPlain(e.Key) && strictyaml.IsNothing(e.Value)
		if k == Resource && b.value.by.given {
			r.Errorf(b.value.by.at, "by", "by: a resource has no arguments to split it; remove \"by\" and \"cases\"")
			continue
		}
		out = append(out, b)
	}
	return out
}

func (r reader) bindingList(k Kind, e entry) []bindingSource {
	var out []bindingSource
	seen := map[string]bool{}
	for _, c := range e.Value.Content {
		n := strictyaml.Resolve(c)
		switch {
		case n.Kind != yaml.ScalarNode || strictyaml.IsNothing(n) && n.Value == "":
			r.Errorf(strictyaml.PlaceOf(c), "type", "%s: a list holds only names, which all stay, not %s; for values write a mapping, without the dashes", e.Name(), strictyaml.NodeText(n))
		case !r.checkPattern(k, n):
		case seen[n.Value]:
			r.Errorf(strictyaml.PlaceOf(c), "duplicate", "%s stands in %s a second time; keep one", strictyaml.Quote(n.Value), e.Name())
		default:
			seen[n.Value] = true
			b := bindingSource{pattern: text{at: strictyaml.PlaceOf(n), value: n.Value, given: true, joined: strictyaml.IsPlain(n)}}
			b.value.at = strictyaml.PlaceOf(n)
			out = append(out, b)
		}
	}
	return out
}

// checkPattern checks a name or glob.
func (r reader) checkPattern(k Kind, n *yaml.Node) bool {
	if !r.checkName(n, "a "+k.String()) {
		return false
	}
	switch {
	case strings.Contains(n.Value, "**"):
		r.Errorf(strictyaml.PlaceOf(n), "glob", "%s: \"**\" means no more than \"*\", which stands for any text; write one star", strictyaml.Quote(n.Value))
	case k == Resource && strings.ContainsAny(n.Value, "{}"):
		r.Errorf(strictyaml.PlaceOf(n), "template", "%s is a URI template; a policy names concrete URIs, or globs over those that the upstream lists (\"*\")", strictyaml.Quote(n.Value))
	default:
		return true
	}
	return false
}

// value reads the value of a binding.
func (r reader) value(e entry) valueSource {
	v := valueSource{at: strictyaml.PlaceOf(e.Value)}
	if n := e.Value; n.Kind == yaml.ScalarNode && !strictyaml.IsNothing(n) && n.Value == "none" {
		v.none = true
		return v
	}
	r.valueOrCase(e, "a binding's value", valueFields(), &v)
	if n := e.Value; n.Kind == yaml.MappingNode {
		r.checkSplit(e, &v)
	}
	return v
}

// valueOrCase reads what the values of bindings and of cases have in common:
// nothing, stay, a state, or a mapping.
func (r reader) valueOrCase(e entry, what string, fields []field[valueSource], v *valueSource) {
	n := e.Value
	switch {
	case strictyaml.IsNothing(n):
		v.bare = true
		v.null = text{at: strictyaml.PlaceOf(n), value: n.Value, given: n.Value != ""}
	case n.Kind == yaml.ScalarNode:
		v.short = true
		v.edges[Success.index()] = r.targetText(text{at: strictyaml.PlaceOf(n), value: n.Value, given: true})
	case n.Kind == yaml.MappingNode:
		strictyaml.ReadFields(r, n, what, fields, v)
		if len(n.Content) == 0 {
			r.Errorf(strictyaml.PlaceOf(n), "value", "%s: an empty mapping says nothing; write stay, a state, or %s", e.Name(), strictyaml.Listed(edgeKeys[:]))
		}
	default:
		r.WrongType(e, "a state, stay, none, or a mapping of "+strictyaml.Listed(edgeKeys[:]))
	}
}

// targetText is the target that one word names.
func (r reader) targetText(t text) targetSource {
	if t.value == "stay" {
		return targetSource{given: true}
	}
	return targetSource{given: true, to: t}
}

// checkSplit checks that by and cases go together, and without other edges.
func (r reader) checkSplit(e entry, v *valueSource) {
	switch {
	case v.by.given && !v.hasCases:
		r.Errorf(v.by.at, "by", "by: %s without \"cases\"; list the texts that it may have", strictyaml.Quote(v.by.value))
	case v.hasCases && !v.by.given:
		r.Errorf(e.Place(), "by", "%s: \"cases\" without \"by\"; name the argument that selects the case", strictyaml.Quote(e.Name()))
	case v.hasCases && v.hasEdges():
		r.Errorf(v.by.at, "by", "%s: edges beside \"by\"; give each case its own", strictyaml.Quote(e.Name()))
	}
}

func readBy(r reader, e entry, into *valueSource) {
	into.by = text{at: e.Place(), given: true}
	t, ok := r.scalar(e, "the name of an argument")
	if ok && t.value == "" {
		r.Errorf(t.at, "by", "by: an empty name; name the argument that selects the case")
	}
	if ok {
		into.by = t
	}
}

func readCases(r reader, e entry, into *valueSource) {
	into.hasCases = true
	if e.Value.Kind != yaml.MappingNode {
		r.WrongType(e, "a mapping of texts to values, such as {plan: stay}")
		return
	}
	for _, x := range r.Entries(e.Value) {
		into.cases = append(into.cases, caseSource{keyText(x), r.caseValue(x)})
	}
	if len(into.cases) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "by", "cases: no case, so every call would be refused; write none, or list the texts")
	}
}

// caseValue reads the value of a case: a binding's, but for none and by.
func (r reader) caseValue(e entry) valueSource {
	v := valueSource{at: strictyaml.PlaceOf(e.Value)}
	if e.Value.Kind == yaml.ScalarNode && !strictyaml.IsNothing(e.Value) && e.Value.Value == "none" {
		r.Errorf(v.at, "value", "%s: none is no value for a case; leave the case out, and it is refused", strictyaml.Quote(e.Name()))
		return v
	}
	r.valueOrCase(e, "a case's value", caseFields(), &v)
	return v
}

// target reads an edge's target: a state, stay, or {to, terminal}.
func (r reader) target(e entry) targetSource {
	n := e.Value
	if n.Kind != yaml.MappingNode {
		t, ok := r.scalar(e, "a state, stay, or {to: STATE, terminal: true}")
		if !ok {
			return targetSource{given: true}
		}
		return r.targetText(t)
	}
	t := targetSource{given: true}
	strictyaml.ReadFields(r, n, "a target", targetFields(), &t)
	if len(n.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(n), "value", "%s: an empty target; write stay, a state, or {to: STATE, terminal: true}", e.Name())
	}
	return t
}

func readTo(r reader, e entry, into *targetSource) {
	if t, ok := r.scalar(e, "a state or stay"); ok {
		into.to = r.targetText(t).to
	}
}
