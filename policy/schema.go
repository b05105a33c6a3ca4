package policy

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// SchemaURL is where the JSON Schema of policy files is published.
const SchemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/policy.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of policy files, generated from
// the tables that Parse reads by. It is checked in as policy.schema.json.
func Schema() []byte { return policySchema().Encode() }

func policySchema() *schema {
	s := strictyaml.ObjectOf(topFields())
	s.Schema = strictyaml.Draft
	s.ID = SchemaURL
	s.Title = "fsm-proxy policy"
	s.Description = "A deterministic finite automaton over the tools, resources and prompts of an MCP server."
	s.Required = []string{"version", "initial", "states"}
	s.PatternProperties = strictyaml.Extensions()
	s.Defs = map[string]*schema{
		"name":   namesText(),
		"place":  orNull(strictyaml.ObjectOf(placeFields())),
		"state":  orNull(strictyaml.ObjectOf(stateFields())),
		"value":  valueSchema("A binding's value: nothing or stay, none, a state (on_success), or a mapping.", strictyaml.ObjectOf(valueFields())),
		"case":   valueSchema("A case's value: nothing or stay, a state (on_success), or a mapping.", strictyaml.ObjectOf(caseFields())),
		"target": targetSchema(),
	}
	s.Defs["value"].AnyOf[1].DependentRequired = map[string][]string{"by": {"cases"}, "cases": {"by"}}
	for _, k := range AllKinds {
		s.Defs[bindingsDef(k)] = bindingsSchema()
	}
	return s
}

func bindingsDef(k Kind) string { return k.Plural() }

// namesText is a name or another text: numbers and booleans are their text.
func namesText() *schema { return &schema{Type: []string{"string", "number", "boolean"}} }

func textSchema() *schema { return &schema{Ref: "#/$defs/name"} }
func nameSchema() *schema { return &schema{Ref: "#/$defs/name"} }
func refTo(def string) func() *schema {
	return func() *schema { return &schema{Ref: "#/$defs/" + def} }
}

func statesSchema() *schema {
	return &schema{
		Type:                 "object",
		PropertyNames:        &schema{Not: &schema{Enum: []string{"stay", "none"}}},
		AdditionalProperties: refTo("state")(),
		MinProperties:        1,
	}
}

func orNull(s *schema) *schema {
	s.Type = []string{"object", "null"}
	return s
}

func valueSchema(doc string, object *schema) *schema {
	object.MinProperties = 1
	return &schema{
		Description: doc,
		AnyOf:       []*schema{{Type: []string{"string", "number", "boolean", "null"}}, object},
	}
}

func targetSchema() *schema {
	s := valueSchema("An edge's target: a state, stay, or {to: STATE, terminal: true}.", strictyaml.ObjectOf(targetFields()))
	s.AnyOf[0] = namesText()
	return s
}

func bindingsSchema() *schema {
	names := &schema{Not: &schema{Pattern: `\*\*`}}
	return &schema{AnyOf: []*schema{
		{Type: []string{"object", "null"}, PropertyNames: names, AdditionalProperties: refTo("value")()},
		{Type: "array", Items: nameSchema(), UniqueItems: true, Description: "Names that all stay."},
	}}
}
