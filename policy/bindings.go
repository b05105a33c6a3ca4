package policy

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// bindings reads what one place binds of one kind: a mapping of names to values,
// or a list of names that all stay.
func (r *reader) bindings(k Kind, e entry) []bindingSource {
	switch {
	case isNothing(e.value):
		return nil
	case e.value.Kind == yaml.MappingNode:
		return r.bindingMap(k, e.value)
	case e.value.Kind == yaml.SequenceNode:
		return r.bindingList(k, e)
	}
	r.wrongType(e, "a mapping of names, or a list of names that stay")
	return nil
}

func (r *reader) bindingMap(k Kind, n *yaml.Node) []bindingSource {
	var out []bindingSource
	for _, e := range r.entries(n) {
		if !r.checkPattern(k, e.key) {
			continue
		}
		b := bindingSource{pattern: e.text(), value: r.value(e)}
		b.pattern.joined = isPlain(e.key) && isNothing(e.value)
		if k == Resource && b.value.by.given {
			r.errorf(b.value.by.at, "by", "by: a resource has no arguments to split it; remove \"by\" and \"cases\"")
			continue
		}
		out = append(out, b)
	}
	return out
}

func (r *reader) bindingList(k Kind, e entry) []bindingSource {
	var out []bindingSource
	seen := map[string]bool{}
	for _, c := range e.value.Content {
		n := resolve(c)
		switch {
		case n.Kind != yaml.ScalarNode || isNothing(n) && n.Value == "":
			r.errorf(placeOf(c), "type", "%s: a list holds only names, which all stay, not %s; for values write a mapping, without the dashes", e.name(), nodeText(n))
		case !r.checkPattern(k, n):
		case seen[n.Value]:
			r.errorf(placeOf(c), "duplicate", "%s stands in %s a second time; keep one", quote(n.Value), e.name())
		default:
			seen[n.Value] = true
			b := bindingSource{pattern: text{at: placeOf(n), value: n.Value, given: true, joined: isPlain(n)}}
			b.value.at = placeOf(n)
			out = append(out, b)
		}
	}
	return out
}

// checkPattern checks a name or glob.
func (r *reader) checkPattern(k Kind, n *yaml.Node) bool {
	if !r.checkName(n, "a "+k.String()) {
		return false
	}
	switch {
	case strings.Contains(n.Value, "**"):
		r.errorf(placeOf(n), "glob", "%s: \"**\" means no more than \"*\", which stands for any text; write one star", quote(n.Value))
	case k == Resource && strings.ContainsAny(n.Value, "{}"):
		r.errorf(placeOf(n), "template", "%s is a URI template; a policy names concrete URIs, or globs over those that the upstream lists (\"*\")", quote(n.Value))
	default:
		return true
	}
	return false
}

// value reads the value of a binding.
func (r *reader) value(e entry) valueSource {
	v := valueSource{at: placeOf(e.value)}
	if n := e.value; n.Kind == yaml.ScalarNode && !isNothing(n) && n.Value == "none" {
		v.none = true
		return v
	}
	r.valueOrCase(e, "a binding's value", valueFields(), &v)
	if n := e.value; n.Kind == yaml.MappingNode {
		r.checkSplit(e, &v)
	}
	return v
}

// valueOrCase reads what the values of bindings and of cases have in common:
// nothing, stay, a state, or a mapping.
func (r *reader) valueOrCase(e entry, what string, fields []field[valueSource], v *valueSource) {
	n := e.value
	switch {
	case isNothing(n):
		v.bare = true
		v.null = text{at: placeOf(n), value: n.Value, given: n.Value != ""}
	case n.Kind == yaml.ScalarNode:
		v.short = true
		v.edges[Success.index()] = r.targetText(text{at: placeOf(n), value: n.Value, given: true})
	case n.Kind == yaml.MappingNode:
		readFields(r, n, what, fields, v)
		if len(n.Content) == 0 {
			r.errorf(placeOf(n), "value", "%s: an empty mapping says nothing; write stay, a state, or %s", e.name(), listed(edgeKeys[:]))
		}
	default:
		r.wrongType(e, "a state, stay, none, or a mapping of "+listed(edgeKeys[:]))
	}
}

// targetText is the target that one word names.
func (r *reader) targetText(t text) targetSource {
	if t.value == "stay" {
		return targetSource{given: true}
	}
	return targetSource{given: true, to: t}
}

// checkSplit checks that by and cases go together, and without other edges.
func (r *reader) checkSplit(e entry, v *valueSource) {
	switch {
	case v.by.given && !v.hasCases:
		r.errorf(v.by.at, "by", "by: %s without \"cases\"; list the texts that it may have", quote(v.by.value))
	case v.hasCases && !v.by.given:
		r.errorf(e.at(), "by", "%s: \"cases\" without \"by\"; name the argument that selects the case", quote(e.name()))
	case v.hasCases && v.hasEdges():
		r.errorf(v.by.at, "by", "%s: edges beside \"by\"; give each case its own", quote(e.name()))
	}
}

func readBy(r *reader, e entry, into *valueSource) {
	into.by = text{at: e.at(), given: true}
	t, ok := r.scalar(e, "the name of an argument")
	if ok && t.value == "" {
		r.errorf(t.at, "by", "by: an empty name; name the argument that selects the case")
	}
	if ok {
		into.by = t
	}
}

func readCases(r *reader, e entry, into *valueSource) {
	into.hasCases = true
	if e.value.Kind != yaml.MappingNode {
		r.wrongType(e, "a mapping of texts to values, such as {plan: stay}")
		return
	}
	for _, x := range r.entries(e.value) {
		into.cases = append(into.cases, caseSource{x.text(), r.caseValue(x)})
	}
	if len(into.cases) == 0 {
		r.errorf(placeOf(e.value), "by", "cases: no case, so every call would be refused; write none, or list the texts")
	}
}

// caseValue reads the value of a case: a binding's, but for none and by.
func (r *reader) caseValue(e entry) valueSource {
	v := valueSource{at: placeOf(e.value)}
	if e.value.Kind == yaml.ScalarNode && !isNothing(e.value) && e.value.Value == "none" {
		r.errorf(v.at, "value", "%s: none is no value for a case; leave the case out, and it is refused", quote(e.name()))
		return v
	}
	r.valueOrCase(e, "a case's value", caseFields(), &v)
	return v
}

// target reads an edge's target: a state, stay, or {to, terminal}.
func (r *reader) target(e entry) targetSource {
	n := e.value
	if n.Kind != yaml.MappingNode {
		t, ok := r.scalar(e, "a state, stay, or {to: STATE, terminal: true}")
		if !ok {
			return targetSource{given: true}
		}
		return r.targetText(t)
	}
	t := targetSource{given: true}
	readFields(r, n, "a target", targetFields(), &t)
	if len(n.Content) == 0 {
		r.errorf(placeOf(n), "value", "%s: an empty target; write stay, a state, or {to: STATE, terminal: true}", e.name())
	}
	return t
}

func readTo(r *reader, e entry, into *targetSource) {
	if t, ok := r.scalar(e, "a state or stay"); ok {
		into.to = r.targetText(t).to
	}
}
