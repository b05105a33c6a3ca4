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
		a := of([]string{"a"})
		for value, is := range someValues {
			if !a.Refused && (!a.Closed[is.Kind()] || slices.Contains(a.Only, is)) {
				continue
			}
			refused++
			for _, call := range []map[string]any{{"a": value}, {"a": value, "b": "x"}, {"a": value, "b": 1.0, "c": nil}} {
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

// someValues are values of every kind, as a validator and as a policy has them.
var someValues = map[any]policy.Argument{
	"x": policy.Text("x"), "y": policy.Text("y"), "z": policy.Text("z"), "1": policy.Text("1"), "true": policy.Text("true"),
	1.0: policy.Literal("1"), 100.0: policy.Literal("1e2"), 1.5: policy.Literal("1.50"), true: policy.Literal("true"), false: policy.Literal("false"),
}

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
		return rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"x", "y", "z", 1.0, 100.0, 1.5, true, false, nil}), 1, 3, func(v any) string { return fmt.Sprint(v) }).Draw(t, label)
	}
	for _, keyword := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"type", "types", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "not", "pattern"}), 0, 3, rapid.ID[string]).Draw(t, "keywords") {
		switch {
		case keyword == "type":
			s["type"] = rapid.SampledFrom([]string{"string", "integer", "number", "boolean", "null", "object"}).Draw(t, "type")
		case keyword == "types":
			s["type"] = []any{"null", rapid.SampledFrom([]string{"string", "integer", "boolean"}).Draw(t, "types")}
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
			switch a := of([]string{"c"}); {
			case a.Refused:
				got = "refused"
			case a.Undeclared:
				got = "undeclared"
			case a.Closed[policy.TextValue]:
				got = "only"
				for _, v := range a.Only {
					if v.Kind() == policy.TextValue {
						got += " " + v.String()
					}
				}
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
		if got := of([]string{"c"}).Mixed; got != want {
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

// A path goes through the objects that a schema declares, and what is said of it is as sure as of an argument.
func TestArgumentsAtPaths(t *testing.T) {
	const defs = `,"$defs":{"In":{"type":"object","properties":{"mode":{"enum":["plan",2]}},"additionalProperties":false},"Loop":{"$ref":"#/$defs/Loop"}}`
	for schema, want := range map[string]string{
		`{"properties":{"in":{"properties":{"mode":{"enum":["plan",2]}}}}}`:                "only plan 2",
		`{"properties":{"in":{"$ref":"#/$defs/In"}}` + defs + `}`:                          "only plan 2",
		`{"properties":{"in":{"$ref":"#/$defs/Loop"}}` + defs + `}`:                        "any",
		`{"properties":{"in":{"anyOf":[{"$ref":"#/$defs/In"}]}}` + defs + `}`:              "any",
		`{"properties":{"in":{"properties":{"made":{}}}}}`:                                 "undeclared in.made",
		`{"properties":{"in":{"properties":{"a":{}},"additionalProperties":false}}}`:       "refused in.a",
		`{"properties":{"in":{"type":"string"}}}`:                                          "refused",
		`{"properties":{"in":{"type":["object","null"]}}}`:                                 "undeclared",
		`{"properties":{"in":{"type":"object","additionalProperties":{"type":"string"}}}}`: "any",
		`{"properties":{"in":true}}`:                                                       "any",
		`{"properties":{"in":false}}`:                                                      "refused",
		`{"properties":{"in":{"properties":{"mode":true}}}}`:                               "any",
		`{"properties":{"in.mode":{"enum":["plan"]}}}`:                                     "undeclared in.mode",
		`{"properties":{"out":{}},"additionalProperties":false}`:                           "refused out",
	} {
		got := "any"
		switch a := argumentsOf(policy.Tool, []byte(`{"name":"x","inputSchema":`+schema+`}`))([]string{"in", "mode"}); {
		case a.Refused:
			got = strings.TrimSpace("refused " + strings.Join(a.Others, " "))
		case a.Undeclared:
			got = strings.TrimSpace("undeclared " + strings.Join(a.Others, " "))
		case a.Closed == nothing.closed:
			got = "only"
			for _, v := range a.Only {
				got += " " + v.String()
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}

// What a tool's outputSchema declares is known of its results, and nothing of one without it.
func TestResultsOfTools(t *testing.T) {
	of := offerOf(policy.Tool, wire.Item{Name: "get", Raw: []byte(`{"name":"get","outputSchema":{"properties":{"n":{"type":"integer"}}}}`)})
	if of.Argument != nil || of.Result([]string{"n"}).Undeclared || !of.Result([]string{"m"}).Undeclared {
		t.Error("the outputSchema is not what is read of results")
	}
	if of = offerOf(policy.Tool, wire.Item{Name: "get", Raw: []byte(`{"name":"get","inputSchema":{"properties":{"n":{}}}}`)}); of.Result != nil {
		t.Error("without an outputSchema something is known of results")
	}
}

// Numbers in a schema are compared as exactly as those of a call.
func TestNumbersOfSchemas(t *testing.T) {
	p, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {get: {by: n, cases: {9007199254740993: stay, 9007199254740992: stay, 1e2: stay}}}}}\n"))
	if findings.Err() != nil {
		t.Fatal(findings)
	}
	offer := offerOf(policy.Tool, wire.Item{Name: "get", Raw: []byte(`{"name":"get","inputSchema":{"properties":{"n":{"enum":[9007199254740993,100.0]}}}}`)})
	found := report.Against(p, []report.Offer{offer}, nil).Errors().String()
	contains(t, found, `argument "n" cannot be 9007199254740992 in the upstream's tool "get"; `)
	if strings.Contains(found, "cannot be 9007199254740993") || strings.Contains(found, "cannot be 1e2") {
		t.Error(found)
	}
}

// What a server says of an argument's kind is compared with what the cases are.
func TestKindsOfCases(t *testing.T) {
	for _, c := range []struct{ schema, cases, want string }{
		{`{"type":"boolean"}`, `{true: stay, false: stay}`, ""},
		{`{"type":"integer"}`, `{404: stay}`, ""},
		{`{"type":["boolean","string"]}`, `{true: stay}`, ""},
		{`{"type":"boolean"}`, `{"true": stay}`, `argument "n" is no text`},
		{`{"type":"integer"}`, `{true: stay, "404": stay}`, `argument "n" is of no kind that a case is`},
		{`{"type":"string"}`, `{404: stay, x: stay}`, `argument "n" cannot be 404`},
		{`{"type":"string"}`, `{"404": stay}`, ""},
		{`{"enum":["build","test"]}`, `{"b*": stay}`, ""},
		{`{"enum":["build","test"]}`, `{"b*": stay, "x*": stay}`, `argument "n" cannot be "x*"`},
		{`{"type":["boolean","string"]}`, `{"a*": stay}`, `may be a boolean or a number`},
	} {
		p, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {get: {by: n, cases: "+c.cases+"}}}}\n"))
		if findings.Err() != nil {
			t.Fatal(findings)
		}
		offer := offerOf(policy.Tool, wire.Item{Name: "get", Raw: []byte(`{"name":"get","inputSchema":{"properties":{"n":` + c.schema + `}}}`)})
		found := report.Against(p, []report.Offer{offer}, nil).String()
		if (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s of %s: %s", c.cases, c.schema, found)
		}
	}
}

// A prompt's arguments are texts, and a server may take others than it declares.
func TestArgumentsOfPrompts(t *testing.T) {
	of := argumentsOf(policy.Prompt, []byte(`{"name":"p","arguments":[{"name":"topic","required":true}]}`))
	if a := of([]string{"topic"}); a.Undeclared || a.Refused || a.Closed != onlyTexts {
		t.Errorf("declared: %+v", a)
	}
	if a := of([]string{"topik"}); !a.Undeclared || a.Refused || a.Closed != onlyTexts {
		t.Errorf("undeclared: %+v", a)
	}
	if a := of([]string{"topic", "name"}); !a.Refused {
		t.Errorf("a text has no members: %+v", a)
	}
}

func contains(t *testing.T, text, word string) {
	t.Helper()
	if !strings.Contains(text, word) {
		t.Errorf("nothing is said of %q in:\n%s", word, text)
	}
}
