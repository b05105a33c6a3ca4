package strictyaml

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Field is one key of a mapping. The tables of fields are the one source of what
// is read, of what is suggested for a misspelt key, and of the JSON Schema.
type Field[T any] struct {
	Name   string
	Doc    string
	Schema func() *Schema
	Read   func(r *Reader, e Entry, into *T)
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
