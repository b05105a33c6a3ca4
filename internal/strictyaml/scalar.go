package strictyaml

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Text is a text with its place.
type Text struct {
	Place
	Value string
}

// WrongType reports a value that is not what its key wants. It repeats the value:
// it is not for what can be a secret.
func (r *Reader) WrongType(e Entry, want string) {
	hint, name := "", e.Name()
	if e.Value.Kind == yaml.ScalarNode && IsPlain(e.Value) && nameColon.MatchString(e.Value.Value) {
		hint = "; put a space after the colon"
	}
	if !plainName.MatchString(name) {
		name = r.quote(name)
	}
	r.Errorf(PlaceOf(e.Value), "type", "%s: wants %s, not %s%s", name, want, NodeText(e.Value), hint)
}

// plainName is a name that a message need not quote.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Mapping reports whether a value is a mapping, and what it wants where it is none.
func (r *Reader) Mapping(e Entry, want string) bool {
	if e.Value.Kind != yaml.MappingNode {
		r.WrongType(e, want)
		return false
	}
	return true
}

// Scalar returns a scalar's text. Numbers and booleans are their text too; an
// unquoted null is nothing.
func (r *Reader) Scalar(e Entry, want string) (Text, bool) {
	n := e.Value
	if n.Kind != yaml.ScalarNode || IsNothing(n) {
		r.WrongType(e, want)
		return Text{}, false
	}
	return Text{PlaceOf(n), n.Value}, true
}

// Boolean reads true or false, unquoted.
func (r *Reader) Boolean(e Entry) (value, ok bool) {
	if e.Value.Kind != yaml.ScalarNode || e.Value.Tag != "!!bool" {
		r.WrongType(e, "true or false")
		return false, false
	}
	return strings.EqualFold(e.Value.Value, "true"), true
}

// Choice returns the index of a value among words.
func (r *Reader) Choice(e Entry, words []string) (int, bool) {
	t, ok := r.Scalar(e, Listed(words))
	if !ok {
		return 0, false
	}
	i := slices.Index(words, t.Value)
	if i < 0 {
		r.NoWord(e, t, words)
	}
	return i, i >= 0
}

// NoWord reports a text that is none of the words which its key takes.
func (r *Reader) NoWord(e Entry, t Text, words []string) {
	r.Errorf(t.Place, "value", "%s: %s is none of %s%s", e.Name(), Quote(t.Value), Listed(words), r.DidYouMean(t.Value, words))
}

// Items returns the elements of a list of texts, each once.
func (r *Reader) Items(e Entry, want string) []Text {
	if e.Value.Kind != yaml.SequenceNode {
		r.WrongType(e, want)
		return nil
	}
	var out []Text
	seen := map[string]bool{}
	for _, c := range e.Value.Content {
		t, ok := r.Scalar(Entry{e.Key, Resolve(c)}, want)
		if ok && seen[t.Value] {
			r.Errorf(t.Place, "duplicate", "%s stands in %s a second time; keep one", Quote(t.Value), e.Name())
			continue
		}
		if ok {
			seen[t.Value] = true
			out = append(out, t)
		}
	}
	return out
}

// Version checks a version key, whose one value is 1.
func (r *Reader) Version(e Entry) {
	if e.Value.Kind != yaml.ScalarNode || e.Value.Tag != "!!int" || e.Value.Value != "1" {
		r.Errorf(PlaceOf(e.Value), "version", "version: this program reads version 1, not %s; write \"version: 1\"", NodeText(e.Value))
	}
}
