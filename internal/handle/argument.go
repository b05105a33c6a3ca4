package handle

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// DefaultArgument is the name of the argument where nothing else is asked for.
const DefaultArgument = "fsm_run"

// maxArgument is how long a name can be that every model's provider takes.
const maxArgument = 64

// ValidArgument says what is wrong with the name of the argument; nil: nothing. It
// is of the characters that every model's provider takes as a name.
func ValidArgument(name string) error {
	if name == "" || len(name) > maxArgument {
		return fmt.Errorf("an argument's name has 1 to %d characters", maxArgument)
	}
	for _, c := range []byte(name) {
		if !plain(c) {
			return fmt.Errorf("an argument's name is of letters, digits, '_' and '-', which %q is not", name)
		}
	}
	return nil
}

// plain reports whether a character stands for itself in a name, and in a regular
// expression alike.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// AddArgument returns a tool's definition with one more argument, a string that is
// required, under a valid name. Everything else stays byte for byte. Where it is not sure that a call that fits the tool's own input schema
// fits the new one with the argument, and nothing else is asked of it, it returns nil
// and why.
func AddArgument(tool []byte, name string) ([]byte, Reason) {
	root, reason := inputSchema(tool)
	if reason != Fits {
		return nil, reason
	}
	s := schema{raw: tool[root.Start:root.End], argument: name}
	if reason := s.read(); reason != Fits {
		return nil, reason
	}
	return wire.Splice(tool, wire.Edit{At: root, With: s.extended()}), Fits
}

// Misfits returns the tools of a list that cannot take the argument, and why: those
// that AddArgument refuses, and those with the name of one of this package's own.
func Misfits(l *wire.List, argument string) map[string]Reason {
	misfits := make(map[string]Reason)
	for _, item := range l.Items {
		if Own(item.Name) {
			misfits[item.Name] = NameTaken
		} else if _, reason := AddArgument(item.Raw, argument); reason != Fits {
			misfits[item.Name] = reason
		}
	}
	return misfits
}

// inputSchema finds the one input schema of a tool.
func inputSchema(tool []byte) (at wire.Span, reason Reason) {
	found := 0
	err := wire.Members(tool, func(key string, value wire.Span) error {
		if key == "inputSchema" {
			at = value
		}
		if key == "inputSchema" || wire.Lookalike(key, "inputSchema") {
			found++
		}
		return nil
	})
	switch {
	case found > 1:
		return at, Ambiguous
	case err != nil || !at.Present() || tool[at.Start] != '{':
		return at, NoSchema
	}
	return at, Fits
}

// extended returns the schema with the argument, in front of the others. It has no x-mcp-header: no
// intermediary has to see which run a call belongs to.
func (s *schema) extended() []byte {
	name := wire.AppendString(nil, s.argument)
	member := append(append([]byte{}, name...), `:{"type":"string","description":`...)
	member = append(wire.AppendString(member, "The run that this call belongs to, as "+StartName+" returned it."), '}')
	a := wire.Amend(s.raw, wire.Span{End: int32(len(s.raw))})
	a.Set(s.properties, "properties", s.inFront(s.properties, "{}", member))
	a.Set(s.required, "required", s.inFront(s.required, "[]", name))
	return a.Bytes()
}

// inFront returns an object, or an array, that holds something more, in front of the rest; at is
// absent where it holds nothing else.
func (s *schema) inFront(at wire.Span, brackets string, what []byte) []byte {
	out := append([]byte{brackets[0]}, what...)
	if at.Present() {
		rest := s.raw[at.Start+1 : at.End-1]
		if len(bytes.TrimSpace(rest)) > 0 {
			out = append(out, ',')
		}
		out = append(out, rest...)
	}
	return append(out, brackets[1])
}

// schema is the root of a tool's input schema, as far as the argument depends on it.
type schema struct {
	raw        []byte
	argument   string
	properties wire.Span
	required   wire.Span
	anchored   bool // the root has a name of its own
}

// keyword is what a member of the root means for an argument that is added to it.
type keyword uint8

const (
	ignored    keyword = iota // it says nothing of members that it does not name
	typed                     // type
	properties                // properties
	required                  // required
	patterns                  // patternProperties
	naming                    // it names members, and what else they want
	reference                 // the root is another schema, too
	combined                  // and has to fit these schemas as well
	closed                    // it limits members beyond properties
	anchor                    // a name by which the root can be referred to
)

// keywords are those of JSON Schema, of all drafts, that can refuse a member, or can
// make the root another one's part. Additional properties refuse none that
// properties names, and a minimum none at all.
var keywords = map[string]keyword{
	"type": typed, "properties": properties, "required": required, "patternProperties": patterns,
	"dependentRequired": naming,
	"$ref":              reference, "$dynamicRef": reference, "$recursiveRef": reference, "extends": reference,
	"allOf": combined, "anyOf": combined, "oneOf": combined, "not": combined,
	"if": combined, "then": combined, "else": combined, "dependentSchemas": combined, "dependencies": combined,
	"disallow":      combined,
	"maxProperties": closed, "propertyNames": closed, "unevaluatedProperties": closed, "const": closed, "enum": closed,
	"$id": anchor, "id": anchor, "$anchor": anchor, "$dynamicAnchor": anchor, "$recursiveAnchor": anchor,
}

// read finds out whether the argument can be added.
func (s *schema) read() Reason {
	reason := Fits
	seen := map[string]bool{}
	_ = wire.Members(s.raw, func(key string, at wire.Span) error {
		if reason != Fits {
			return nil
		}
		if keywords[key] != ignored && seen[key] {
			reason = Ambiguous
			return nil
		}
		seen[key] = true
		reason = s.keyword(keywords[key], at)
		return nil
	})
	if reason == Fits {
		reason = s.references()
	}
	return reason
}

func (s *schema) keyword(k keyword, at wire.Span) Reason {
	value := s.raw[at.Start:at.End]
	switch k {
	case typed:
		if text, _ := wire.Text(value); text != "object" {
			return NotObject
		}
	case properties:
		s.properties = at
		return s.names(value)
	case required:
		if s.required = at; value[0] != '[' {
			return NotObject
		}
		return s.mentions(value)
	case patterns:
		return s.patterns(value)
	case naming:
		return s.mentions(value)
	case reference:
		return Reference
	case combined:
		return Combined
	case closed:
		return Closed
	case anchor:
		s.anchored = true
	}
	return Fits
}

// alike reports whether a name is the argument's, to some readers.
func (s *schema) alike(name string) bool {
	return name == s.argument || wire.Lookalike(name, s.argument)
}

// names looks for the argument among the names of an object's members.
func (s *schema) names(object []byte) Reason {
	if object[0] != '{' {
		return NotObject
	}
	reason := Fits
	_ = wire.Members(object, func(name string, _ wire.Span) error {
		if s.alike(name) {
			reason = ArgumentTaken
		}
		return nil
	})
	return reason
}

// mentions looks for the argument among all texts of a value.
func (s *schema) mentions(value []byte) Reason {
	for dec := decoder(value); ; {
		token, err := dec.ReadToken()
		switch {
		case err != nil:
			return Fits // the end
		case token.Kind() == '"' && s.alike(token.String()):
			return ArgumentTaken
		}
	}
}

// patterns looks for a pattern that could hold for the argument.
func (s *schema) patterns(object []byte) Reason {
	if object[0] != '{' {
		return NotObject
	}
	reason := Fits
	_ = wire.Members(object, func(pattern string, _ wire.Span) error {
		if !excludes(pattern, s.argument) {
			reason = Closed
		}
		return nil
	})
	return reason
}

// excludes reports whether a regular expression surely does not match a name: it is
// bound to the beginning and goes on with other plain characters. What other
// expressions match differs between the readers of schemas.
func excludes(pattern, name string) bool {
	rest, anchored := strings.CutPrefix(pattern, "^")
	if !anchored || strings.Contains(rest, "|") {
		return false
	}
	n := 0
	for n < len(rest) && plain(rest[n]) {
		n++
	}
	if n > 0 && n < len(rest) && strings.IndexByte("*?{+", rest[n]) >= 0 {
		n-- // which may be none, or more than one
	}
	return !strings.HasPrefix(name, rest[:n])
}

// references looks, at every depth, for what may refer to the root: there the
// argument would be asked for again.
func (s *schema) references() Reason {
	for dec := decoder(s.raw); ; {
		token, err := dec.ReadToken()
		if err != nil {
			return Fits // the end
		}
		kind, length := dec.StackIndex(dec.StackDepth())
		if token.Kind() != '"' || kind != '{' || length%2 == 0 {
			continue // no name
		}
		name := token.String()
		if dec.PeekKind() != '"' {
			continue
		}
		to, err := dec.ReadToken()
		switch {
		case err != nil, name == "$dynamicRef", name == "$recursiveRef":
			return Recursive
		case name == "$ref" && (to.String() == "" || to.String() == "#" || s.anchored && !strings.HasPrefix(to.String(), "#/")):
			return Recursive // other references are to something within the root
		}
	}
}

func decoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Reason says why the argument cannot be added to a tool. The zero value is that it
// can.
type Reason uint8

// The reasons.
const (
	Fits          Reason = iota
	NoSchema             // there is no inputSchema, or it is no object
	Ambiguous            // a member that matters is there twice, or has a lookalike
	NotObject            // the root says that it is no object, or what it says cannot be read
	Reference            // the root is, or may be, another schema
	Recursive            // the root may be referred to from within, where the argument has no business
	Combined             // the root is combined with other schemas, which may refuse the argument
	Closed               // the root refuses members whatever properties says
	ArgumentTaken        // the tool has an argument of that name, or one that reads alike
	NameTaken            // the tool has the name of one of this package's own
)

var reasons = [...]struct{ word, text string }{
	Fits:          {"fits", ""},
	NoSchema:      {"no-schema", "it has no inputSchema that is an object"},
	Ambiguous:     {"ambiguous", "its inputSchema says something twice"},
	NotObject:     {"not-object", "its inputSchema is of no object with properties"},
	Reference:     {"reference", "its inputSchema is a reference to another one"},
	Recursive:     {"recursive", "its inputSchema is referred to from within itself"},
	Combined:      {"combined", "its inputSchema is combined with other schemas"},
	Closed:        {"closed", "its inputSchema limits what arguments there can be beyond its properties"},
	ArgumentTaken: {"argument-taken", "it has an argument of this name already"},
	NameTaken:     {"name-taken", "the proxy has a tool of this name itself"},
}

// String is the reason in one word, for machines.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].word
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Text is the rest of a sentence that begins with the tool, and "because".
func (r Reason) Text() string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return r.String()
}
