package policy

// SchemaURL is where the JSON Schema of policy files is published.
const SchemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/policy.schema.json"

// schema is one JSON Schema of draft 2020-12, as far as policies need it.
type schema struct {
	Schema               string              `json:"$schema,omitempty"`
	ID                   string              `json:"$id,omitempty"`
	Title                string              `json:"title,omitempty"`
	Description          string              `json:"description,omitempty"`
	Ref                  string              `json:"$ref,omitempty"`
	Type                 any                 `json:"type,omitempty"` // a string or a list of them
	Const                any                 `json:"const,omitempty"`
	Enum                 []string            `json:"enum,omitempty"`
	Pattern              string              `json:"pattern,omitempty"`
	Not                  *schema             `json:"not,omitempty"`
	AnyOf                []*schema           `json:"anyOf,omitempty"`
	Items                *schema             `json:"items,omitempty"`
	UniqueItems          bool                `json:"uniqueItems,omitempty"`
	Properties           map[string]*schema  `json:"properties,omitempty"`
	PatternProperties    map[string]*schema  `json:"patternProperties,omitempty"`
	PropertyNames        *schema             `json:"propertyNames,omitempty"`
	AdditionalProperties any                 `json:"additionalProperties,omitempty"` // false or a *schema
	MinProperties        int                 `json:"minProperties,omitempty"`
	Required             []string            `json:"required,omitempty"`
	DependentRequired    map[string][]string `json:"dependentRequired,omitempty"`
	Defs                 map[string]*schema  `json:"$defs,omitempty"`
}

// Schema returns the JSON Schema (draft 2020-12) of policy files, generated from
// the tables that Parse reads by. It is checked in as policy.schema.json.
func Schema() []byte { return encodeJSON(policySchema()) }

func policySchema() *schema {
	s := objectOf(topFields())
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.ID = SchemaURL
	s.Title = "fsm-proxy policy"
	s.Description = "A deterministic finite automaton over the tools, resources and prompts of an MCP server."
	s.Required = []string{"version", "initial", "states"}
	s.PatternProperties = map[string]*schema{"^x-": {Description: "Ignored; a place for anchors."}}
	s.Defs = map[string]*schema{
		"name":   namesText(),
		"place":  orNull(objectOf(placeFields())),
		"state":  orNull(objectOf(stateFields())),
		"value":  valueSchema("A binding's value: nothing or stay, none, a state (on_success), or a mapping.", objectOf(valueFields())),
		"case":   valueSchema("A case's value: nothing or stay, a state (on_success), or a mapping.", objectOf(caseFields())),
		"target": targetSchema(),
	}
	s.Defs["value"].AnyOf[1].DependentRequired = map[string][]string{"by": {"cases"}, "cases": {"by"}}
	for _, k := range AllKinds {
		s.Defs[bindingsDef(k)] = bindingsSchema()
	}
	return s
}

func bindingsDef(k Kind) string { return k.Plural() }

// objectOf is a closed mapping with the fields of a table.
func objectOf[T any](fields []field[T]) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, AdditionalProperties: false}
	for _, f := range fields {
		p := *f.schema()
		p.Description = f.doc
		s.Properties[f.name] = &p
	}
	return s
}

// namesText is a name or another text: numbers and booleans are their text.
func namesText() *schema { return &schema{Type: []string{"string", "number", "boolean"}} }

func textSchema() *schema { return &schema{Ref: "#/$defs/name"} }
func nameSchema() *schema { return &schema{Ref: "#/$defs/name"} }
func boolSchema() *schema { return &schema{Type: "boolean"} }

func constOf(v any) func() *schema {
	return func() *schema { return &schema{Const: v} }
}

func enumOf(words []string) func() *schema {
	return func() *schema { return &schema{Enum: words} }
}

func refTo(def string) func() *schema {
	return func() *schema { return &schema{Ref: "#/$defs/" + def} }
}

func listOf(item func() *schema) func() *schema {
	return func() *schema { return &schema{Type: "array", Items: item(), UniqueItems: true} }
}

func mapOf(value func() *schema) func() *schema {
	return func() *schema { return &schema{Type: "object", AdditionalProperties: value()} }
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
	s := valueSchema("An edge's target: a state, stay, or {to: STATE, terminal: true}.", objectOf(targetFields()))
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
