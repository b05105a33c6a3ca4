package play

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

func TestSchemaIsCheckedIn(t *testing.T) {
	golden.Compare(t, filepath.Join("..", "..", "policy", "test.schema.json"), Schema())
}

// validates reports why a file of tests does not fit the schema, as an editor would.
func validates(t *testing.T, src []byte) error {
	t.Helper()
	unmarshal := func(text []byte) any {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(SchemaURL, unmarshal(Schema())); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(SchemaURL)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Load(src, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(unmarshal(text))
}

// The ready policies' tests fit the schema, and name it in their first line.
func TestSchemaAcceptsReadyTests(t *testing.T) {
	files, err := filepath.Glob("../../policies/*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validates(t, src); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.HasPrefix(string(src), "# yaml-language-server: $schema="+SchemaURL+"\n") {
			t.Errorf("%s does not name the schema in its first line", file)
		}
	}
}

// What Read does not take the schema refuses, and what it takes the schema accepts.
func TestSchemaAgainstRead(t *testing.T) {
	for steps, want := range map[string]bool{
		`[{tool: x, args: {a: [1, {b: null}]}, answer: {result: {isError: true}}, state: a, registers: {r: null, n: 1}, lists: {tools: [], signals: [go]}}]`: true,
		`[{signal: go, from: operator}, {wait: 31m}, {resource: "file:///a", who: {subject: a, issuer: b, scopes: [c], claims: {d: [e]}}}]`:                  true,
		`[{tool: x, approve: allow}, {tool: x, approve: deny, refused: approval_denied}, {prompt: p, refused: guard_failed, because: No.}]`:                  true,
		`[{tool: x, answer: no}]`:            false,
		`[{tool: x, answer: {results: {}}}]`: false,
		`[{tool: x, refused: nonsense}]`:     false,
		`[{tool: x, approve: maybe}]`:        false,
		`[{state: a}]`:                       false,
		`[{tool: x, args: [1]}]`:             false,
		`[{signal: go, from: somebody}]`:     false,
		`[{tool: x, lists: {tool: [a]}}]`:    false,
		`[{tool: x, who: {name: a}}]`:        false,
		`[{tool: x, expect: a}]`:             false,
		`{tool: x}`:                          false,
	} {
		src := []byte("version: 1\npolicy: p.yaml\nx-shared: 1\ntests: [{name: n, steps: " + steps + "}]\n")
		f, found := Read("p.test.yaml", src)
		if (f != nil) != want {
			t.Errorf("%s: read %v: %v", steps, f != nil, found)
		}
		if err := validates(t, src); (err == nil) != want {
			t.Errorf("%s: %v", steps, err)
		}
	}
}
