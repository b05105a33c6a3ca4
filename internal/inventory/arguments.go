package inventory

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// argumentsOf returns what the definition of a tool or a prompt, as it is listed, says of
// an argument; nil: nothing.
func argumentsOf(kind policy.Kind, raw []byte) func(path []string) report.Argument {
	switch kind {
	case policy.Tool:
		var tool struct {
			Schema map[string]any `json:"inputSchema"`
		}
		if err := json.Unmarshal(raw, &tool, exactNumbers); err == nil && tool.Schema != nil {
			return (&objectSchema{root: tool.Schema}).argument
		}
	case policy.Prompt:
		var prompt struct {
			Arguments []struct {
				Name string `json:"name"`
			} `json:"arguments"`
		}
		if err := json.Unmarshal(raw, &prompt); err != nil {
			return nil
		}
		var names []string
		for _, a := range prompt.Arguments {
			names = append(names, a.Name)
		}
		return func(path []string) report.Argument {
			if len(path) > 1 { // they are texts
				return report.Argument{Undeclared: true, Refused: slices.Contains(names, path[0]), Others: names}
			}
			return report.Argument{Undeclared: !slices.Contains(names, path[0]), Others: names, Closed: onlyTexts}
		}
	}
	return nil
}

// resultOf is argumentsOf for what a tool's definition says of its results' structuredContent.
func resultOf(kind policy.Kind, raw []byte) func(path []string) report.Argument {
	var tool struct {
		Schema map[string]any `json:"outputSchema"`
	}
	if err := json.Unmarshal(raw, &tool, exactNumbers); kind != policy.Tool || err != nil || tool.Schema == nil {
		return nil
	}
	return (&objectSchema{root: tool.Schema}).argument
}

// number is a number in a schema, as it is written.
type number string

// exactNumbers has numbers that are read into any come as they are written.
var exactNumbers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, into *any) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	raw, err := dec.ReadValue()
	*into = number(raw)
	return err
}))

// onlyTexts are the kinds of values that a prompt's argument cannot be.
var onlyTexts = [policy.ValueKinds]bool{policy.NumberValue: true, policy.BooleanValue: true}

// objectSchema reads the JSON Schema of a tool's arguments, or of its results, of any draft. It says only what
// is sure: keywords that it does not know can only narrow a schema, except for $ref,
// beside which drafts up to 7 ignore all others.
type objectSchema struct {
	root map[string]any
	read int // schemas so far, for one argument
}

// maxSchemas is how many schemas are read for one argument.
const maxSchemas = 1000

// declaring are the keywords by which other schemas can declare arguments.
var declaring = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef", "patternProperties"}

// argument returns what the schema says of the argument at a path, the zero value where
// that is not sure.
func (s *objectSchema) argument(path []string) report.Argument {
	s.read = 0
	return s.member(s.root, "", path)
}

// member returns what the schema of an object says of what is at a path in it. within is
// the object's own path, with its dot.
func (s *objectSchema) member(object map[string]any, within string, path []string) report.Argument {
	if object["$ref"] != nil {
		return report.Argument{}
	}
	properties, ok := object["properties"].(map[string]any)
	if !ok && object["properties"] != nil {
		return report.Argument{}
	}
	if declared, ok := properties[path[0]]; ok {
		if len(path) > 1 {
			return s.inner(declared, within+path[0]+".", path[1:])
		}
		v := s.values(declared)
		return report.Argument{Mixed: mixed(declared), Closed: v.closed, Only: v.only}
	}
	patterns := object["patternProperties"] != nil
	closed := object["additionalProperties"] == false && !patterns
	if !closed && slices.ContainsFunc(declaring, func(keyword string) bool { return object[keyword] != nil }) {
		return report.Argument{}
	}
	if additional, ok := object["additionalProperties"].(map[string]any); ok && len(additional) > 0 {
		return report.Argument{} // a map by any name
	}
	others := slices.Sorted(maps.Keys(properties))
	for i := range others {
		others[i] = within + others[i]
	}
	return report.Argument{Undeclared: true, Refused: closed, Others: others}
}

// inner is member of an argument that is declared: it may be referred to, and be no object.
func (s *objectSchema) inner(declared any, within string, path []string) report.Argument {
	keywords, ok := declared.(map[string]any)
	for ok && keywords["$ref"] != nil {
		target, found := s.target(keywords["$ref"])
		if s.read++; !found || s.read > maxSchemas {
			return report.Argument{}
		}
		keywords, ok = target.(map[string]any)
	}
	switch {
	case !ok && declared == false, ok && !allows(keywords["type"], "object"):
		return report.Argument{Undeclared: true, Refused: true}
	case !ok:
		return report.Argument{}
	}
	return s.member(keywords, within, path)
}

// mixed reports whether a schema names the type string beside boolean or a number.
func mixed(schema any) bool {
	keywords, _ := schema.(map[string]any)
	types := []any{keywords["type"]}
	for _, keyword := range []string{"type", "anyOf", "oneOf"} {
		some, _ := keywords[keyword].([]any)
		for _, one := range some {
			if option, ok := one.(map[string]any); ok {
				one = option["type"]
			}
			types = append(types, one)
		}
	}
	return slices.Contains(types, any("string")) && slices.ContainsFunc(types, func(t any) bool {
		return t == "boolean" || t == "number" || t == "integer"
	})
}

// valueSet is the set of texts, numbers and booleans that a schema allows: all of the kinds
// that are not closed, and some.
type valueSet struct {
	closed [policy.ValueKinds]bool
	only   []policy.Argument // of closed kinds
}

// nothing is the set without any value.
var nothing = valueSet{closed: [policy.ValueKinds]bool{policy.TextValue: true, policy.NumberValue: true, policy.BooleanValue: true}}

// has reports whether a value is in the set.
func (v valueSet) has(a policy.Argument) bool {
	return !v.closed[a.Kind()] || slices.Contains(v.only, a)
}

// intersect returns the values that both allow.
func (v valueSet) intersect(other valueSet) (out valueSet) {
	for k := range out.closed {
		out.closed[k] = v.closed[k] || other.closed[k]
	}
	for _, a := range slices.Concat(v.only, other.only) {
		if v.has(a) && other.has(a) && !slices.Contains(out.only, a) {
			out.only = append(out.only, a)
		}
	}
	return out
}

// union returns the values that one of both allows.
func (v valueSet) union(other valueSet) (out valueSet) {
	for k := range out.closed {
		out.closed[k] = v.closed[k] && other.closed[k]
	}
	for _, a := range slices.Concat(v.only, other.only) {
		if out.closed[a.Kind()] {
			out.only = append(out.only, a)
		}
	}
	return out
}

// values returns the values that a schema allows, or more.
func (s *objectSchema) values(schema any) valueSet {
	if schema == false {
		return nothing
	}
	keywords, ok := schema.(map[string]any)
	if s.read++; !ok || s.read > maxSchemas {
		return valueSet{}
	}
	if ref, ok := keywords["$ref"]; ok {
		target, ok := s.target(ref)
		if !ok {
			return valueSet{}
		}
		return s.values(target)
	}
	var out valueSet
	if types, ok := keywords["type"]; ok {
		out.closed[policy.TextValue] = !allows(types, "string")
		out.closed[policy.NumberValue] = !allows(types, "number") && !allows(types, "integer")
		out.closed[policy.BooleanValue] = !allows(types, "boolean")
	}
	if value, ok := keywords["const"]; ok {
		out = out.intersect(valuesIn([]any{value}))
	}
	if values, ok := keywords["enum"].([]any); ok {
		out = out.intersect(valuesIn(values))
	}
	if all, ok := keywords["allOf"].([]any); ok {
		for _, one := range all {
			out = out.intersect(s.values(one))
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if some, ok := keywords[keyword].([]any); ok && len(some) > 0 {
			one := nothing
			for _, option := range some {
				one = one.union(s.values(option))
			}
			out = out.intersect(one)
		}
	}
	return out
}

// allows reports whether the value of the keyword type allows a type, or is not known.
func allows(types any, wanted string) bool {
	switch types := types.(type) {
	case string:
		return types == wanted || !slices.Contains(knownTypes, types)
	case []any:
		return len(types) == 0 || slices.ContainsFunc(types, func(one any) bool { return allows(one, wanted) })
	}
	return true
}

// knownTypes are the types of JSON Schema.
var knownTypes = []string{"null", "boolean", "object", "array", "number", "integer", "string"}

// valuesIn returns the texts, numbers and booleans among the values of const or enum.
func valuesIn(values []any) valueSet {
	out := valueSet{closed: nothing.closed}
	for _, v := range values {
		switch v := v.(type) {
		case string:
			out.only = append(out.only, policy.Text(v))
		case bool:
			out.only = append(out.only, policy.Literal(strconv.FormatBool(v)))
		case number:
			if n := policy.Literal(string(v)); n.Kind() == policy.NumberValue {
				out.only = append(out.only, n)
			}
		}
	}
	return out
}

// target returns what a $ref within the schema refers to; ok is false where that is not
// sure.
func (s *objectSchema) target(ref any) (at any, ok bool) {
	pointer, ok := ref.(string)
	path, within := strings.CutPrefix(pointer, "#/")
	if !ok || !within || rebased(s.root, true) {
		return nil, false
	}
	at = s.root
	for part := range strings.SplitSeq(path, "/") {
		part, err := url.PathUnescape(part)
		if err != nil {
			return nil, false
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch inside := at.(type) {
		case map[string]any:
			at, ok = inside[part]
		case []any:
			i, err := strconv.Atoi(part)
			if ok = err == nil && i >= 0 && i < len(inside); ok {
				at = inside[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return at, true
}

// rebased reports whether some part of a schema other than its root has an $id, to which
// references within that part are relative.
func rebased(schema any, root bool) bool {
	switch schema := schema.(type) {
	case map[string]any:
		for name, value := range schema {
			_, text := value.(string)
			if !root && text && (name == "$id" || name == "id") || rebased(value, false) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(schema, func(part any) bool { return rebased(part, false) })
	}
	return false
}
