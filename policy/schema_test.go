package policy

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

func load(t testing.TB, file string) *Policy {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, filepath.Base(file), src)
}

// parse parses a policy that has no errors.
func parse(t testing.TB, file string, src []byte) *Policy {
	t.Helper()
	p, found := Parse(file, src)
	if p == nil {
		t.Fatalf("%s:\n%v", file, found)
	}
	return p
}

func TestSchemaIsCheckedIn(t *testing.T) { golden.Compare(t, "policy.schema.json", Schema()) }

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(SchemaURL, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(SchemaURL)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a policy as an editor's schema checker sees it.
func asJSON(t testing.TB, src []byte) any {
	t.Helper()
	var v any
	if err := yaml.Load(src, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(stringKeys(v))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func stringKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = stringKeys(v[k])
		}
	case map[any]any:
		out := map[string]any{}
		for k, x := range v {
			text, _ := json.Marshal(k)
			out[strings.Trim(string(text), `"`)] = stringKeys(x)
		}
		return out
	case []any:
		for i := range v {
			v[i] = stringKeys(v[i])
		}
	}
	return v
}

func TestSchemaAcceptsWhatParses(t *testing.T) {
	s := compiledSchema(t)
	for _, file := range model.Examples(t, ".") {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(asJSON(t, src)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compiledSchema(t)
	for name, states := range map[string]string{
		"unknown key of a state":   `{a: {tool: {x: }}}`,
		"unknown key of a value":   `{a: {tools: {x: {onsuccess: a}}}}`,
		"by without cases":         `{a: {tools: {x: {by: c}}}}`,
		"a list as a value":        `{a: {tools: {x: [a]}}}`,
		"nothing after on_success": `{a: {tools: {x: {on_success: }}}}`,
		"two stars":                `{a: {tools: {"x**": }}}`,
		"a state called stay":      `{stay: }`,
		"an empty value":           `{a: {tools: {x: {}}}}`,
		"a text for terminal":      `{a: {terminal: "yes"}}`,
	} {
		src := "version: 1\ninitial: a\nstates: " + states
		if err := s.Validate(asJSON(t, []byte(src))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
