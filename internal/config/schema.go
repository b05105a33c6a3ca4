package config

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// SchemaURL is where the JSON Schema of configuration files is published.
const SchemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/internal/config/config.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of configuration files, generated
// from the table that Parse reads by. It is checked in as config.schema.json.
func Schema() []byte {
	s := strictyaml.ObjectOf(fieldsOf(""))
	s.Schema = strictyaml.Draft
	s.ID = SchemaURL
	s.Title = "fsm-proxy configuration"
	s.Description = "What `fsm-proxy run` takes from --config; flags and the environment win over it."
	s.Required = []string{"version"}
	s.PatternProperties = strictyaml.Extensions()
	return s.Encode()
}

// groupSchema is a group's mapping, or nothing, as where all of it is a comment.
func groupSchema(path string) *schema {
	s := strictyaml.ObjectOf(fieldsOf(path))
	s.Type = []string{"object", "null"}
	g := groups[path]
	s.Required, s.DependentRequired = g.required, g.needs
	for _, name := range g.oneOf {
		s.AnyOf = append(s.AnyOf, &schema{Required: []string{name}})
	}
	if len(g.oneOf) > 0 {
		s.Not = &schema{Required: g.oneOf}
	}
	return s
}

func anyText() *schema { return &schema{Type: []string{"string", "number", "boolean"}} }

func numberSchema() *schema { return &schema{Type: "integer", Minimum: 1} }

func durationSchema() *schema {
	return &schema{Type: "string", Pattern: `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}
}

func sizeSchema() *schema {
	return &schema{Type: []string{"integer", "string"}, Minimum: 1, Pattern: `^ *[0-9]+ *([KkMmGg]?[Ii]?[Bb])? *$`}
}

func commandSchema() *schema { return &schema{Type: "array", Items: anyText(), MinItems: 1} }

func variablesSchema() *schema {
	return &schema{Type: "object", PropertyNames: &schema{Pattern: "^[^=]+$"}, AdditionalProperties: anyText()}
}

func headersSchema() *schema {
	return &schema{Type: "object", PropertyNames: &schema{Pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"}, AdditionalProperties: anyText()}
}
