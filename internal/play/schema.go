package play

import (
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

type schema = strictyaml.Schema

// SchemaURL is where the JSON Schema of files of tests is published.
const SchemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/test.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of files of tests, generated from the tables that Read reads by. It is
// checked in as policy/test.schema.json.
func Schema() []byte {
	s := strictyaml.ObjectOf(fileFields)
	s.Schema, s.ID = strictyaml.Draft, SchemaURL
	s.Title, s.Description = "fsm-proxy tests", "Tests of a policy: what is called, what the server answers, and what is expected."
	s.Required = []string{"version", "policy", "tests"}
	s.PatternProperties = strictyaml.Extensions()
	return s.Encode()
}

func testSchema() *schema {
	s := strictyaml.ObjectOf(testFields)
	s.Required = []string{"name"}
	return s
}

// stepSchema is that of a step, which calls one thing, or waits.
func stepSchema() *schema {
	s := strictyaml.ObjectOf(stepFields)
	for _, key := range append([]string{"wait"}, calls...) {
		s.AnyOf = append(s.AnyOf, &schema{Required: []string{key}})
	}
	return s
}

func whoSchema() *schema { return strictyaml.ObjectOf(whoFields) }

func namesSchema(kinds int) *schema { return strictyaml.ObjectOf(namesFields(kinds)) }

func answerSchema() *schema {
	s := strictyaml.ObjectOf(answerFields)
	s.Required = []string{"result"}
	return &schema{AnyOf: []*schema{{Enum: answers}, s}}
}

// textSchema is that of a text: numbers and booleans are theirs.
func textSchema() *schema { return &schema{Type: []string{"string", "number", "boolean"}} }

func textsSchema() *schema { return &schema{Type: "array", Items: textSchema()} }

func objectSchema() *schema { return &schema{Type: "object"} }

// codes are the words of refusals.
func codes() (words []string) {
	for c := policy.CodeNone + 1; c.Text() != c.String(); c++ {
		words = append(words, c.String())
	}
	return words
}
