package strictyaml

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
)

// Draft is the JSON Schema dialect of [Schema].
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is one JSON Schema of draft 2020-12, as far as the files need it.
type Schema struct {
	Schema               string              `json:"$schema,omitzero"`
	ID                   string              `json:"$id,omitzero"`
	Title                string              `json:"title,omitzero"`
	Description          string              `json:"description,omitzero"`
	Ref                  string              `json:"$ref,omitzero"`
	Type                 any                 `json:"type,omitzero"` // a string or a list of them
	Const                any                 `json:"const,omitzero"`
	Enum                 []string            `json:"enum,omitzero"`
	Pattern              string              `json:"pattern,omitzero"`
	Not                  *Schema             `json:"not,omitzero"`
	AnyOf                []*Schema           `json:"anyOf,omitzero"`
	Items                *Schema             `json:"items,omitzero"`
	UniqueItems          bool                `json:"uniqueItems,omitzero"`
	MinItems             int                 `json:"minItems,omitzero"`
	Minimum              int                 `json:"minimum,omitzero"`
	Maximum              int                 `json:"maximum,omitzero"`
	Properties           map[string]*Schema  `json:"properties,omitzero"`
	PatternProperties    map[string]*Schema  `json:"patternProperties,omitzero"`
	PropertyNames        *Schema             `json:"propertyNames,omitzero"`
	AdditionalProperties any                 `json:"additionalProperties,omitzero"` // false or a *Schema
	MinProperties        int                 `json:"minProperties,omitzero"`
	MaxProperties        int                 `json:"maxProperties,omitzero"`
	Required             []string            `json:"required,omitzero"`
	DependentRequired    map[string][]string `json:"dependentRequired,omitzero"`
	Defs                 map[string]*Schema  `json:"$defs,omitzero"`
}

// Encode returns the schema as indented JSON, the same bytes each time.
func (s *Schema) Encode() []byte {
	text, err := json.Marshal(s, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		panic("encoding a schema: " + err.Error()) // plain structs and maps cannot fail
	}
	return append(text, '\n')
}

// ObjectOf returns the schema of a closed mapping with the fields of a table.
func ObjectOf[T any](fields []Field[T]) *Schema {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, AdditionalProperties: false}
	for _, f := range fields {
		p := *f.Schema()
		p.Description = f.Doc
		if f.Pattern != "" {
			s.PatternProperties = map[string]*Schema{f.Pattern: &p}
			continue
		}
		s.Properties[f.Name] = &p
	}
	return s
}

// Extensions returns the pattern of the keys that [Reader.Tree] ignores.
func Extensions() map[string]*Schema {
	return map[string]*Schema{"^x-": {Description: "Ignored; a place for anchors."}}
}

// Bool returns the schema of true or false.
func Bool() *Schema { return &Schema{Type: "boolean"} }

// Const returns the schema of one value.
func Const(v any) func() *Schema {
	return func() *Schema { return &Schema{Const: v} }
}

// Enum returns the schema of one of a closed set of words.
func Enum(words []string) func() *Schema {
	return func() *Schema { return &Schema{Enum: words} }
}

// List returns the schema of a list that holds each item once.
func List(item func() *Schema) func() *Schema {
	return func() *Schema { return &Schema{Type: "array", Items: item(), UniqueItems: true} }
}

// Map returns the schema of a mapping with names of the file's own.
func Map(value func() *Schema) func() *Schema {
	return func() *Schema { return &Schema{Type: "object", AdditionalProperties: value()} }
}
