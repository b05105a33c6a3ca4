package policy

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// wrongType reports a value that is not what its key wants.
func (r *reader) wrongType(e entry, want string) {
	hint, name := "", e.name()
	if e.value.Kind == yaml.ScalarNode && isPlain(e.value) && nameColon.MatchString(e.value.Value) {
		hint = "; put a space after the colon"
	}
	if !plainName.MatchString(name) {
		name = quote(name)
	}
	r.errorf(placeOf(e.value), "type", "%s: wants %s, not %s%s", name, want, nodeText(e.value), hint)
}

// plainName is a name that a message need not quote.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// scalar returns a scalar's text. Numbers and booleans are their text too; an
// unquoted null is nothing.
func (r *reader) scalar(e entry, want string) (text, bool) {
	n := e.value
	if n.Kind != yaml.ScalarNode || isNothing(n) {
		r.wrongType(e, want)
		return text{}, false
	}
	return text{at: placeOf(n), value: n.Value, given: true}, true
}

func readText[T any](field func(*T) *string) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if t, ok := r.scalar(e, "a text"); ok {
			*field(into) = t.value
		}
	}
}

// readBool reads true or false, unquoted.
func readBool[T any](field func(*T) *bool) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if b, ok := r.boolean(e); ok {
			*field(into) = b
		}
	}
}

func (r *reader) boolean(e entry) (value, ok bool) {
	if e.value.Kind != yaml.ScalarNode || e.value.Tag != "!!bool" {
		r.wrongType(e, "true or false")
		return false, false
	}
	return strings.EqualFold(e.value.Value, "true"), true
}

// readWord reads one of a closed set.
func readWord[T any, W ~uint8](words []string, field func(*T) *W) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if i, ok := r.choice(e, words); ok {
			*field(into) = W(i)
		}
	}
}

// choice returns the index of a value among words.
func (r *reader) choice(e entry, words []string) (int, bool) {
	t, ok := r.scalar(e, listed(words))
	if !ok {
		return 0, false
	}
	i := slices.Index(words, t.value)
	if i < 0 {
		r.errorf(t.at, "value", "%s: %s is none of %s%s", e.name(), quote(t.value), listed(words), r.didYouMean(t.value, words))
	}
	return i, i >= 0
}

// items returns the elements of a list of texts as entries of the list's key.
func (r *reader) items(e entry, want string) []text {
	if e.value.Kind != yaml.SequenceNode {
		r.wrongType(e, want)
		return nil
	}
	var out []text
	seen := map[string]bool{}
	for _, c := range e.value.Content {
		t, ok := r.scalar(entry{e.key, resolve(c)}, want)
		if ok && seen[t.value] {
			r.errorf(t.at, "duplicate", "%s stands in %s a second time; keep one", quote(t.value), e.name())
			continue
		}
		if ok {
			seen[t.value] = true
			out = append(out, t)
		}
	}
	return out
}

func readVersion(r *reader, e entry, into *source) {
	into.version = true
	if e.value.Kind != yaml.ScalarNode || e.value.Tag != "!!int" || e.value.Value != "1" {
		r.errorf(placeOf(e.value), "version", "version: this program reads version 1, not %s; write \"version: 1\"", nodeText(e.value))
	}
}

func readInitial(r *reader, e entry, into *source) {
	into.initial, into.hasInitial = text{}, true
	if t, ok := r.scalar(e, "the name of a state"); ok {
		into.initial = t
	}
}

func readUpstreamMay(r *reader, e entry, into *source) {
	into.upstreamMay = UpstreamMay{}
	for _, t := range r.items(e, "a list of "+listed(upstreamAsks)) {
		switch t.value {
		case "sampling":
			into.upstreamMay.Sampling = true
		case "elicitation":
			into.upstreamMay.Elicitation = true
		case "roots":
			into.upstreamMay.Roots = true
		default:
			r.errorf(t.at, "value", "%s: %s is none of %s%s", e.name(), quote(t.value), listed(upstreamAsks), r.didYouMean(t.value, upstreamAsks))
		}
	}
}

// decided are the methods that the automaton, or what it binds, decides on.
var decided = []string{
	"tools/call", "tools/list", "resources/read", "resources/list", "resources/templates/list", "resources/subscribe",
	"resources/unsubscribe", "prompts/get", "prompts/list", "completion/complete", "initialize",
}

func readPassthrough(r *reader, e entry, into *source) {
	for _, t := range r.items(e, "a list of methods") {
		if strings.Contains(t.value, "*") || t.value == "" {
			r.errorf(t.at, "value", "%s: %s is no method; name each method whole", e.name(), quote(t.value))
			continue
		}
		if slices.Contains(decided, t.value) {
			r.errorf(t.at, "value", "%s: %s is decided by the states and cannot be let past them; remove it", e.name(), quote(t.value))
			continue
		}
		into.passthrough = append(into.passthrough, t.value)
	}
}

func readRenamed(r *reader, e entry, into *source) {
	if e.value.Kind != yaml.MappingNode {
		r.wrongType(e, "a mapping of old names to new ones")
		return
	}
	for _, x := range r.entries(e.value) {
		if t, ok := r.scalar(x, "the new name of a state"); ok {
			into.renames = append(into.renames, renameSource{x.text(), t})
		}
	}
}

func readEverywhere(r *reader, e entry, into *source) {
	into.everywhere.at = e.at()
	switch {
	case isNothing(e.value):
	case e.value.Kind != yaml.MappingNode:
		r.wrongType(e, "a mapping of tools, resources, prompts")
	default:
		readFields(r, e.value, "everywhere", placeFields(), &into.everywhere)
	}
}

func readInherits(r *reader, e entry, into *stateSource) {
	if b, ok := r.boolean(e); ok {
		into.without = !b
	}
}

func readStates(r *reader, e entry, into *source) {
	into.hasStates = true
	if e.value.Kind != yaml.MappingNode {
		r.wrongType(e, "a mapping of states by name")
		return
	}
	for _, x := range r.entries(e.value) {
		if r.checkStateName(x) {
			into.states = append(into.states, r.state(x))
		}
	}
}

func (r *reader) checkStateName(e entry) bool {
	if !r.checkName(e.key, "a state") {
		return false
	}
	if e.name() == "stay" || e.name() == "none" {
		r.errorf(e.at(), "state-name", "%s is no name for a state: it is a word of the language; call it something else", quote(e.name()))
		return false
	}
	return true
}

func (r *reader) state(e entry) stateSource {
	s := stateSource{name: e.text()}
	s.at = e.at()
	switch {
	case isNothing(e.value):
	case e.value.Kind != yaml.MappingNode:
		r.wrongType(e, "a mapping, such as {tools: {…}}, or nothing")
	default:
		readFields(r, e.value, "a state", stateFields(), &s)
	}
	return s
}

// checkName checks what every name must be: a text with no control character,
// and, unquoted, with no colon at its end.
func (r *reader) checkName(n *yaml.Node, what string) bool {
	switch {
	case n.Value == "":
		r.errorf(placeOf(n), "name", "%s with an empty name; give it one", what)
	case strings.ContainsFunc(n.Value, isControl):
		r.errorf(placeOf(n), "name", "%s is no name for %s: it holds control characters", quote(n.Value), what)
	case strings.HasSuffix(n.Value, ":") && isPlain(n):
		r.errorf(placeOf(n), "colon", "%s ends in a colon; put a space after the colon, or quote the name if it ends so", quote(n.Value))
	default:
		return true
	}
	return false
}

func isControl(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029'
}
