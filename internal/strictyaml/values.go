package strictyaml

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Entry is one key of a mapping with its value.
type Entry struct {
	Key   *yaml.Node // a scalar
	Value *yaml.Node // resolved
}

// Name returns the key's text.
func (e Entry) Name() string { return e.Key.Value }

// Place returns where the key begins.
func (e Entry) Place() Place { return PlaceOf(e.Key) }

// Entries returns a mapping's entries in order, merged ones last; what a mapping
// says itself holds before what it merges, and the earlier merge before the
// later. Anything but a mapping has none.
func (r *Reader) Entries(n *yaml.Node) []Entry {
	m := merger{r: r, seen: map[string]bool{}}
	m.add(n)
	return m.out
}

// TypedEntries is Entries of a mapping in which a key with quotes is another than the
// same without: see [Language.Typed].
func (r *Reader) TypedEntries(n *yaml.Node) []Entry {
	m := merger{r: r, seen: map[string]bool{}, typed: true}
	m.add(n)
	return m.out
}

type merger struct {
	r     *Reader
	seen  map[string]bool // by keyID
	typed bool
	out   []Entry
}

func (m *merger) add(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := Resolve(n.Content[i]), Resolve(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode: // reported by the walker
		case isMerge(key):
			merges = append(merges, value)
		case !m.seen[keyID(key, m.typed)]:
			m.seen[keyID(key, m.typed)] = true
			m.out = append(m.out, Entry{key, value})
		}
	}
	for _, v := range merges {
		m.merge(v)
	}
}

func (m *merger) merge(v *yaml.Node) {
	switch v.Kind {
	case yaml.MappingNode:
		m.add(v)
	case yaml.SequenceNode:
		for _, c := range v.Content {
			if c = Resolve(c); c.Kind != yaml.MappingNode {
				m.r.Errorf(PlaceOf(c), "merge", `"<<" merges mappings, not %s`, m.r.nodeText(c))
			} else {
				m.add(c)
			}
		}
	default:
		m.r.Errorf(PlaceOf(v), "merge", `"<<" merges mappings, not %s`, m.r.nodeText(v))
	}
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }

// withoutExtensions returns a mapping without the keys that begin with x-, which
// are ignored: a place for anchors.
func (r *Reader) withoutExtensions(n *yaml.Node) *yaml.Node {
	kept := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
	for _, e := range r.Entries(n) {
		if !strings.HasPrefix(e.Name(), "x-") {
			kept.Content = append(kept.Content, e.Key, e.Value)
		}
	}
	return kept
}

// Field is one key of a mapping. The tables of fields are the one source of what
// is read, of what is suggested for a misspelt key, and of the JSON Schema.
type Field[T any] struct {
	Name    string
	Doc     string
	Schema  func() *Schema
	Read    func(r *Reader, e Entry, into *T)
	Matches func(key string) bool // other keys that it is read for; nil: none
	Pattern string                // of those, in the JSON Schema
}

func fieldNames[T any](fields []Field[T]) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// ReadFields reads a mapping by its table. what names it in messages.
func ReadFields[T any](r *Reader, n *yaml.Node, what string, fields []Field[T], into *T) {
	for _, e := range r.Entries(n) {
		i := slices.IndexFunc(fields, func(f Field[T]) bool { return f.Name == e.Name() })
		if i < 0 {
			i = slices.IndexFunc(fields, func(f Field[T]) bool { return f.Matches != nil && f.Matches(e.Name()) })
		}
		if i < 0 {
			r.unknownKey(e, what, fieldNames(fields))
			continue
		}
		fields[i].Read(r, e, into)
	}
}

// unknownKey reports a key that a mapping of fields does not have.
func (r *Reader) unknownKey(e Entry, what string, names []string) {
	if name, rest, found := strings.Cut(e.Name(), ":"); found && slices.Contains(names, name) {
		r.spaceAfterColon(e, name, rest)
		return
	}
	hint := r.DidYouMean(e.Name(), names)
	if hint == "" {
		hint = "; it knows " + Listed(names)
	}
	r.Errorf(e.Place(), "unknown-key", "%s is no key of %s%s", r.quote(e.Name()), what, hint)
}

// spaceAfterColon reports NAME: or NAME:VALUE read as one word.
func (r *Reader) spaceAfterColon(e Entry, name, rest string) {
	example := name + ": " + rest
	if rest == "" || r.lang.Secrets {
		example = name + ": …"
	}
	r.Errorf(e.Place(), "colon", "%s is one word in YAML; put a space after the colon: %s", r.quote(e.Name()), example)
}

// Text is a text with its place.
type Text struct {
	Place
	Value string
}

// WrongType reports a value that is not what its key wants. It repeats the value:
// it is not for what can be a secret.
func (r *Reader) WrongType(e Entry, want string) {
	hint, name := "", e.Name()
	if e.Value.Kind == yaml.ScalarNode && IsPlain(e.Value) && nameColon().MatchString(e.Value.Value) {
		hint = "; put a space after the colon"
	}
	if len(name) > 64 || !plainName.MatchString(name) {
		name = r.quote(name)
	}
	r.Errorf(PlaceOf(e.Value), "type", "%s: wants %s, not %s%s", name, want, NodeText(e.Value), hint)
}

// plainName is a name that a message need not quote, unless it is long.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

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
