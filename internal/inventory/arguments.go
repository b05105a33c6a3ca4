package inventory

import (
	"encoding/json/v2"
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
func argumentsOf(kind policy.Kind, raw []byte) func(name string) report.Argument {
	switch kind {
	case policy.Tool:
		var tool struct {
			Schema map[string]any `json:"inputSchema"`
		}
		if err := json.Unmarshal(raw, &tool); err == nil && tool.Schema != nil {
			return (&inputSchema{root: tool.Schema}).argument
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
		return func(name string) report.Argument {
			return report.Argument{Undeclared: !slices.Contains(names, name), Others: names}
		}
	}
	return nil
}

// inputSchema reads the JSON Schema of a tool's arguments, of any draft. It says only what
// is sure: keywords that it does not know can only narrow a schema, except for $ref,
// beside which drafts up to 7 ignore all others.
type inputSchema struct {
	root map[string]any
	read int // schemas so far, for one argument
}

// maxSchemas is how many schemas are read for one argument.
const maxSchemas = 1000

// declaring are the keywords by which other schemas can declare arguments.
var declaring = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef", "patternProperties"}

// argument returns what the schema says of an argument, the zero value where that is not
// sure.
func (s *inputSchema) argument(name string) report.Argument {
	if s.root["$ref"] != nil {
		return report.Argument{}
	}
	properties, ok := s.root["properties"].(map[string]any)
	if !ok && s.root["properties"] != nil {
		return report.Argument{}
	}
	if declared, ok := properties[name]; ok {
		s.read = 0
		texts := s.texts(declared)
		return report.Argument{Mixed: mixed(declared), Closed: !texts.any, Texts: texts.only}
	}
	patterns := s.root["patternProperties"] != nil
	closed := s.root["additionalProperties"] == false && !patterns
	if !closed && slices.ContainsFunc(declaring, func(keyword string) bool { return s.root[keyword] != nil }) {
		return report.Argument{}
	}
	if additional, ok := s.root["additionalProperties"].(map[string]any); ok && len(additional) > 0 {
		return report.Argument{} // a map by any name
	}
	return report.Argument{Undeclared: true, Refused: closed, Others: slices.Sorted(maps.Keys(properties))}
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

// textSet is the set of strings that a schema allows: any, or only some.
type textSet struct {
	any  bool
	only []string
}

var anyText = textSet{any: true}

// intersect returns the strings that both allow.
func (t textSet) intersect(other textSet) textSet {
	switch {
	case t.any:
		return other
	case other.any:
		return t
	}
	return textSet{only: slices.DeleteFunc(slices.Clone(t.only), func(text string) bool { return !slices.Contains(other.only, text) })}
}

// texts returns the strings that a schema allows, or more.
func (s *inputSchema) texts(schema any) textSet {
	if schema == false {
		return textSet{}
	}
	keywords, ok := schema.(map[string]any)
	if s.read++; !ok || s.read > maxSchemas {
		return anyText
	}
	if ref, ok := keywords["$ref"]; ok {
		return s.referred(ref)
	}
	out := anyText
	if types, ok := keywords["type"]; ok && !allowsString(types) {
		out = textSet{}
	}
	if value, ok := keywords["const"]; ok {
		out = out.intersect(textsIn([]any{value}))
	}
	if values, ok := keywords["enum"].([]any); ok {
		out = out.intersect(textsIn(values))
	}
	if all, ok := keywords["allOf"].([]any); ok {
		for _, one := range all {
			out = out.intersect(s.texts(one))
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if some, ok := keywords[keyword].([]any); ok && len(some) > 0 {
			out = out.intersect(s.union(some))
		}
	}
	return out
}

// allowsString reports whether the value of the keyword type allows strings, or is not
// known.
func allowsString(types any) bool {
	switch types := types.(type) {
	case string:
		return types == "string" || !slices.Contains(otherTypes, types)
	case []any:
		return len(types) == 0 || slices.ContainsFunc(types, allowsString)
	}
	return true
}

// otherTypes are the types of JSON Schema that are not string.
var otherTypes = []string{"null", "boolean", "object", "array", "number", "integer"}

// textsIn returns the strings among the values of const or enum.
func textsIn(values []any) (t textSet) {
	for _, v := range values {
		if text, ok := v.(string); ok {
			t.only = append(t.only, text)
		}
	}
	return t
}

// union returns the strings that one of some schemas allows.
func (s *inputSchema) union(some []any) (out textSet) {
	for _, one := range some {
		t := s.texts(one)
		if t.any {
			return anyText
		}
		out.only = append(out.only, t.only...)
	}
	return out
}

// referred returns the strings that the target of a $ref within the schema allows.
func (s *inputSchema) referred(ref any) textSet {
	pointer, ok := ref.(string)
	path, within := strings.CutPrefix(pointer, "#/")
	if !ok || !within || rebased(s.root, true) {
		return anyText
	}
	var at any = s.root
	for part := range strings.SplitSeq(path, "/") {
		part, err := url.PathUnescape(part)
		if err != nil {
			return anyText
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
			return anyText
		}
	}
	return s.texts(at)
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
