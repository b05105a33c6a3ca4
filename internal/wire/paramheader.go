package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
)

// ParamHeader is an argument of a tool that calls over HTTP repeat in a header
// (2026-07-28, basic/transports/streamable-http, "Custom Headers from Tool
// Parameters").
type ParamHeader struct {
	Name string   // of the header, in its canonical form: "Mcp-Param-Region"
	Path []string // of the argument: the names of the members that lead to it
}

// annotation is the member of a property's schema that names its header.
const annotation = "x-mcp-header"

// ParamHeaders returns which arguments a tool's inputSchema wants repeated, in its
// order; nil: none, as with most tools. The error says why clients that speak HTTP
// must not offer the tool at all.
func ParamHeaders(inputSchema []byte) ([]ParamHeader, error) {
	if !bytes.Contains(inputSchema, []byte(annotation)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return nil, nil
	}
	s := headerSearch{taken: make(map[string]bool)}
	if err := s.schema(inputSchema, nil, true); err != nil {
		return nil, fmt.Errorf("reading %s: %w", annotation, err)
	}
	return s.found, nil
}

// headerSearch looks for annotations where they may stand, and where they must not.
type headerSearch struct {
	found []ParamHeader
	taken map[string]bool // names, in lower case
}

// nesting is how schemas stand in a schema under a keyword.
type nesting uint8

const (
	nestsOne  nesting = iota + 1 // a schema, or a list of them
	nestsMany                    // an object of schemas by name
)

// beyond are the keywords under which no annotation may stand.
var beyond = map[string]nesting{
	"items": nestsOne, "prefixItems": nestsOne, "additionalItems": nestsOne, "unevaluatedItems": nestsOne, "contains": nestsOne,
	"additionalProperties": nestsOne, "unevaluatedProperties": nestsOne, "propertyNames": nestsOne,
	"oneOf": nestsOne, "anyOf": nestsOne, "allOf": nestsOne, "not": nestsOne, "if": nestsOne, "then": nestsOne, "else": nestsOne,
	"patternProperties": nestsMany, "dependentSchemas": nestsMany, "$defs": nestsMany, "definitions": nestsMany,
}

// schema looks into a schema. reachable says that properties alone lead to it.
func (s *headerSearch) schema(raw []byte, path []string, reachable bool) error {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var header, kind []byte
	err := Members(raw, func(name string, at Span) error {
		value := raw[at.Start:at.End]
		switch name {
		case annotation:
			header = value
		case "type":
			kind = value
		case "properties":
			return s.named(value, path, reachable)
		}
		switch beyond[name] {
		case nestsOne:
			return s.nested(value, path)
		case nestsMany:
			return s.named(value, path, false)
		}
		return nil
	})
	if err != nil || header == nil {
		return err
	}
	return s.add(header, kind, path, reachable)
}

// named looks into an object of schemas by name.
func (s *headerSearch) named(raw []byte, path []string, reachable bool) error {
	if raw[0] != '{' {
		return nil
	}
	return Members(raw, func(name string, at Span) error {
		return s.schema(raw[at.Start:at.End], append(path[:len(path):len(path)], name), reachable)
	})
}

// nested looks into a schema or a list of schemas that no annotation may be in.
func (s *headerSearch) nested(raw []byte, path []string) error {
	if raw[0] != '[' {
		return s.schema(raw, path, false)
	}
	dec := decoder(raw)
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		item, err := dec.ReadValue()
		if err == nil {
			err = s.schema(bytes.Clone(item), path, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *headerSearch) add(header, kind []byte, path []string, reachable bool) error {
	name, ok := Text(header)
	where := strings.Join(path, ".")
	switch {
	case !reachable || len(path) == 0:
		return fmt.Errorf("it may stand in a property that properties alone lead to, and not at %q", where)
	case !ok || !IsToken(name):
		return fmt.Errorf("%s of %q is no header's name", header, where)
	case s.taken[strings.ToLower(name)]:
		return fmt.Errorf("%q, of %q, is another property's, too", name, where)
	}
	switch t, _ := Text(kind); t {
	case "string", "integer", "boolean":
	default:
		return fmt.Errorf("the type of %q must be string, integer or boolean", where)
	}
	s.taken[strings.ToLower(name)] = true
	s.found = append(s.found, ParamHeader{Name: textproto.CanonicalMIMEHeaderKey(HeaderParam + name), Path: path})
	return nil
}

// Value returns the header's value for a call with these arguments; ok is false
// where the header is to be left out.
func (h *ParamHeader) Value(arguments []byte) (value string, ok bool) {
	text, ok := headerText(h.argument(arguments))
	if !ok {
		return "", false
	}
	return EncodeHeader(text), true
}

// argument returns the raw argument, nil where there is none, or null.
func (h *ParamHeader) argument(raw []byte) []byte {
	for _, part := range h.Path {
		if len(raw) == 0 || raw[0] != '{' {
			return nil
		}
		raw = Member(raw, part)
	}
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// headerText is the text of a string, a boolean or an integer.
func headerText(raw []byte) (text string, ok bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch kind := jsontext.Value(raw).Kind(); kind {
	case '"':
		return Text(raw)
	case 't', 'f':
		return string(raw), true
	case '0':
		n, ok := safeInteger(string(raw))
		return strconv.FormatInt(n, 10), ok
	}
	return "", false
}

// maxSafe is the largest integer that every reader of JSON tells from the next.
const maxSafe = 1<<53 - 1

// safeInteger reads an integer, written as one or not: 42.0 is 42.
func safeInteger(text string) (n int64, ok bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != float64(int64(f)) || f > maxSafe || f < -maxSafe {
		return 0, false
	}
	return int64(f), true
}

// ParamFault says what is wrong with the headers of a call that repeat its
// arguments; empty: nothing. values returns all values of a header by its canonical
// name.
func ParamFault(headers []ParamHeader, arguments []byte, values func(name string) []string) string {
	for i := range headers {
		if fault := headers[i].fault(arguments, values(headers[i].Name)); fault != "" {
			return fault
		}
	}
	return ""
}

func (h *ParamHeader) fault(arguments []byte, values []string) string {
	raw := h.argument(arguments)
	text, repeatable := headerText(raw)
	switch {
	case len(values) > 1:
		return "there is more than one " + h.Name
	case len(values) == 0 && repeatable:
		return h.Name + " is missing, which repeats the argument " + strings.Join(h.Path, ".")
	case len(values) == 0:
		return ""
	}
	value, ok := DecodeHeader(values[0])
	switch {
	case !ok:
		return h.Name + " is neither visible ASCII nor Base64 as it should be"
	case !repeatable || value != text && !(raw[0] != '"' && sameInteger(value, text)):
		return h.Name + " does not repeat the argument " + strings.Join(h.Path, ".")
	}
	return ""
}

// sameInteger compares a header's value with an integer by its number: it may be
// written with a fraction of zeros, but in no other way.
func sameInteger(value, text string) bool {
	if strings.Trim(value, "-.0123456789") != "" {
		return false
	}
	a, ok := safeInteger(value)
	b, also := safeInteger(text)
	return ok && also && a == b
}
