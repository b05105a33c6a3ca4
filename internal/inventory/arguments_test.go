package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// What a schema says of an argument is what a validator does with it: an argument that
// is refused, or a text that it cannot be, makes no call valid.
func TestArgumentsAreRefusedByAValidator(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(drawSchema(t))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("schema:///s", document); err != nil {
			t.Fatal(err)
		}
		schema, err := c.Compile("schema:///s")
		if err != nil {
			t.Skip(err)
		}
		of := argumentsOf(policy.Tool, fmt.Appendf(nil, `{"name":"x","inputSchema":%s}`, raw))
		a := of("a")
		for _, text := range texts3 {
			if !a.Refused && (!a.Closed || slices.Contains(a.Texts, text)) {
				continue
			}
			refused++
			for _, call := range []map[string]any{{"a": text}, {"a": text, "b": "x"}, {"a": text, "b": 1.0, "c": nil}} {
				if schema.Validate(call) == nil {
					t.Fatalf("%s takes %v; it is said that it does not: %+v", raw, call, a)
				}
			}
		}
	})
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

var texts3 = []string{"x", "y", "z"}

// drawSchema draws a schema of the arguments a and b.
func drawSchema(t *rapid.T) map[string]any {
	s := map[string]any{"$defs": map[string]any{"p": drawValue(t, 1), "q": drawValue(t, 1)}}
	maybe := func(keyword string, values ...any) {
		if i := rapid.IntRange(-1, len(values)-1).Draw(t, keyword); i >= 0 {
			s[keyword] = values[i]
		}
	}
	maybe("$schema", "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema")
	maybe("properties", map[string]any{"a": drawValue(t, 2), "b": true}, map[string]any{"a": drawValue(t, 2)}, map[string]any{"b": map[string]any{"$id": "http://x/y", "type": "string"}})
	maybe("additionalProperties", false, false, true, map[string]any{"type": "string"})
	maybe("patternProperties", map[string]any{"^a": drawValue(t, 1)}, map[string]any{})
	maybe("allOf", []any{map[string]any{"properties": map[string]any{"a": drawValue(t, 1)}}})
	if rapid.IntRange(0, 9).Draw(t, "root ref") == 0 {
		s["$ref"] = "#/$defs/p"
	}
	return s
}

// drawValue draws the schema of a value.
func drawValue(t *rapid.T, depth int) any {
	if rapid.IntRange(0, 19).Draw(t, "boolean") == 0 {
		return rapid.Bool().Draw(t, "which")
	}
	s := map[string]any{}
	list := func(label string) []any {
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"x", "y", "z", 1.0, nil}), 1, 3, func(v any) string { return fmt.Sprint(v) }).Draw(t, label)
	}
	for _, keyword := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"type", "types", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "not", "pattern"}), 0, 3, rapid.ID[string]).Draw(t, "keywords") {
		switch {
		case keyword == "type":
			s["type"] = rapid.SampledFrom([]string{"string", "integer", "null", "object"}).Draw(t, "type")
		case keyword == "types":
			s["type"] = []any{"null", rapid.SampledFrom([]string{"string", "integer"}).Draw(t, "types")}
		case keyword == "enum":
			s["enum"] = list("enum")
		case keyword == "const":
			s["const"] = list("const")[0]
		case keyword == "pattern":
			s["pattern"] = "x"
		case keyword == "$ref":
			s["$ref"] = rapid.SampledFrom([]string{"#/$defs/p", "#/$defs/q", "#/properties/a", "#"}).Draw(t, "$ref")
		case depth > 0 && keyword == "not":
			s["not"] = drawValue(t, depth-1)
		case depth > 0:
			s[keyword] = []any{drawValue(t, depth-1), drawValue(t, depth-1)}
		}
	}
	return s
}

// What servers write for a choice of texts is read as one.
func TestArgumentsOfServers(t *testing.T) {
	const defs = `"$defs":{"Command":{"enum":["plan","apply"],"type":"string"}}`
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"c":{"type":"string","enum":["plan","apply"]}}}`:                                                  "only plan apply",
		`{"properties":{"c":{"$ref":"#/$defs/Command"}},` + defs + `}`:                                                                    "only plan apply",
		`{"properties":{"c":{"allOf":[{"$ref":"#/$defs/Command"}],"default":"plan"}},` + defs + `}`:                                       "only plan apply",
		`{"properties":{"c":{"anyOf":[{"$ref":"#/$defs/Command"},{"type":"null"}]}},` + defs + `}`:                                        "only plan apply",
		`{"properties":{"c":{"const":"plan"}}}`:                                                                                           "only plan",
		`{"properties":{"c":{"type":"string"}}}`:                                                                                          "any",
		`{"properties":{"c":{}}}`:                                                                                                         "any",
		`{"properties":{"c":{"type":["string","null"]}}}`:                                                                                 "any",
		`{"properties":{"c":{"type":"integer"}}}`:                                                                                         "only",
		`{"properties":{"c":{"anyOf":[{"enum":["plan"]},{"type":"string"}]}}}`:                                                            "any",
		`{"properties":{"c":{"$ref":"https://elsewhere/x"}}}`:                                                                             "any",
		`{"properties":{"c":{"$ref":"#/$defs/c"}},"$defs":{"c":{"$ref":"#/$defs/c"}}}`:                                                    "any",
		`{"properties":{"d":{}},"additionalProperties":false}`:                                                                            "refused",
		`{"properties":{"d":{}},"additionalProperties":false,"patternProperties":{"^c":{}}}`:                                              "any",
		`{"properties":{"d":{}}}`:                                                                                                         "undeclared",
		`{"type":"object"}`:                                                                                                               "undeclared",
		`{"properties":{"d":{}},"additionalProperties":{"type":"string"}}`:                                                                "any",
		`{"properties":{"d":{}},"anyOf":[{"properties":{"c":{}}}]}`:                                                                       "any",
		`{"$ref":"#/$defs/Args","additionalProperties":false,"$defs":{"Args":{"properties":{"c":{}}}}}`:                                   "any",
		`{"properties":{"c":{"enum":["plan"]}},"properties":{"c":{"enum":["apply"]}}}`:                                                    "any",
		`{"properties":{"c":{"$ref":"#/properties/d"},"d":{"$id":"urn:x","enum":["plan"]}}}`:                                              "any",
		`{"properties":{"c":{"enum":["plan","apply"]}},"allOf":[{"properties":{"c":{"const":"plan"}}}],"additionalProperties":false}`:     "only plan apply",
		`{"properties":{"c":{"oneOf":[{"const":"plan","title":"Plan"},{"const":"apply"}]}}}`:                                              "only plan apply",
		`{"properties":{"c":{"type":"string","enum":["plan","apply"],"not":{"const":"plan"}}},"unevaluatedProperties":false,"title":"T"}`: "only plan apply",
	} {
		got := "any"
		if of := argumentsOf(policy.Tool, []byte(`{"name":"x","inputSchema":`+schema+`}`)); of != nil {
			switch a := of("c"); {
			case a.Refused:
				got = "refused"
			case a.Undeclared:
				got = "undeclared"
			case a.Closed:
				got = strings.TrimSpace("only " + strings.Join(a.Texts, " "))
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}

// An argument that is a boolean or a number as often as a text, as servers in Python and sequential-thinking have them.
func TestMixedArguments(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":["boolean","string"]}`:                            true,
		`{"anyOf":[{"type":"boolean"},{"type":"string"}]}`:         true,
		`{"oneOf":[{"type":"integer"},{"type":"string"}]}`:         true,
		`{"type":"string"}`:                                        false,
		`{"type":["string","null"]}`:                               false,
		`{"anyOf":[{"type":"string"},{"type":"null"}]}`:            false,
		`{"type":"boolean"}`:                                       false,
		`{"type":[["string"],{"type":{}}],"anyOf":{},"oneOf":[1]}`: false,
		`true`: false,
	} {
		of := argumentsOf(policy.Tool, []byte(`{"name":"x","inputSchema":{"properties":{"c":`+schema+`}}}`))
		if got := of("c").Mixed; got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
	p, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {think: {by: more, cases: {\"true\": stay, \"false\": stay}}}}}\n"))
	if findings.Err() != nil {
		t.Fatal(findings)
	}
	offer := offerOf(policy.Tool, wire.Item{Name: "think", Raw: []byte(`{"name":"think","inputSchema":{"properties":{"more":{"type":["boolean","string"]}}}}`)})
	contains(t, report.Against(p, []report.Offer{offer}, nil).Warnings().String(), "by: argument \"more\" may be a boolean or a number in the upstream's tool \"think\"; no case is that, so such a call is refused")
}

// A prompt's arguments are texts, and a server may take others than it declares.
func TestArgumentsOfPrompts(t *testing.T) {
	of := argumentsOf(policy.Prompt, []byte(`{"name":"p","arguments":[{"name":"topic","required":true}]}`))
	if a := of("topic"); a.Undeclared || a.Refused || a.Closed {
		t.Errorf("declared: %+v", a)
	}
	if a := of("topik"); !a.Undeclared || a.Refused || a.Closed {
		t.Errorf("undeclared: %+v", a)
	}
}

func contains(t *testing.T, text, word string) {
	t.Helper()
	if !strings.Contains(text, word) {
		t.Errorf("nothing is said of %q in:\n%s", word, text)
	}
}
