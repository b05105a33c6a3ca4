package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Headers of the modern era that repeat what the body says, in their canonical
// form (2026-07-28, basic/transports/streamable-http, "Request Metadata").
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	// HeaderParam begins the names of those that repeat a tool's arguments.
	HeaderParam = "Mcp-Param-"
)

// What stands around a header's value that is Base64.
const (
	encodedHead = "=?base64?"
	encodedTail = "?="
)

// Named returns what Mcp-Name repeats of a request, which is required where named
// is true. An empty name: the request has none.
func (m *Message) Named() (name string, named bool) {
	switch m.Method {
	case "tools/call", "prompts/get":
		return m.P.Name, true
	case "resources/read":
		return m.P.URI, true
	case "tasks/get", "tasks/update", "tasks/cancel":
		return m.P.TaskID, true
	}
	return "", false
}

// EncodeHeader returns a header's value that stands for text: itself where it is
// made of visible ASCII and spaces within, else its Base64 form, which the empty
// text has, too, as headers without a value are lost on some ways.
func EncodeHeader(text string) string {
	if plainHeader(text) && !encoded(text) {
		return text
	}
	return encodedHead + base64.StdEncoding.EncodeToString([]byte(text)) + encodedTail
}

// DecodeHeader returns what a header's value stands for. ok is false where it has
// characters that no header may have, or claims to be Base64 and is not.
func DecodeHeader(value string) (text string, ok bool) {
	for i := range len(value) {
		if c := value[i]; c != '\t' && (c < ' ' || c > '~') {
			return "", false
		}
	}
	if !encoded(value) {
		return value, true
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(value[len(encodedHead) : len(value)-len(encodedTail)])
	return string(raw), err == nil && utf8.Valid(raw)
}

func encoded(value string) bool {
	return len(value) >= len(encodedHead)+len(encodedTail) && strings.HasPrefix(value, encodedHead) && strings.HasSuffix(value, encodedTail)
}

// plainHeader reports whether text arrives as it is when it is a header's value.
func plainHeader(text string) bool {
	if text == "" || text[0] == ' ' || text[len(text)-1] == ' ' {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

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
	return Elements(raw, func(item []byte) error { return s.schema(item, path, false) })
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

// maxClipped is how many characters of a name Clip leaves.
const maxClipped = 128

// Clip escapes and cuts a name that a peer sent, so that a text about it is no carrier
// of text of its own.
func Clip(name string) string {
	quoted := strconv.Quote(name)
	name = quoted[1 : len(quoted)-1]
	if utf8.RuneCountInString(name) <= maxClipped {
		return name
	}
	return string([]rune(name)[:maxClipped]) + "…"
}

// IsToken reports whether a text can be the name of a header, or a part of one (RFC
// 9110, 5.6.2).
func IsToken[T ~string | ~[]byte](text T) bool {
	return len(text) > 0 && MadeOf(text, "!#$%&'*+-.^_`|~")
}

// MadeOf reports whether a text is made of ASCII letters, digits and some marks.
func MadeOf[T ~string | ~[]byte](text T, marks string) bool {
	for i := range len(text) {
		b := text[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && strings.IndexByte(marks, b) < 0 {
			return false
		}
	}
	return true
}
