package handle

import (
	"bytes"
	"encoding/json/jsontext"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

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
		if err != nil || s.refers(name, to.String()) {
			return Recursive
		}
	}
}

// refers reports whether a member may refer to the root.
func (s *schema) refers(name, to string) bool {
	switch {
	case name == "$dynamicRef" || name == "$recursiveRef":
		return true
	case name != "$ref" || strings.HasPrefix(to, "#/"): // something within the root
		return false
	}
	return s.anchored || to == "" || to == "#"
}

func decoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
