package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// Each message is to be read as its user would: it says what is wrong, where, and
// what to do, and never a secret.
func TestFindings(t *testing.T) {
	const file = "testdata/findings.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if !strings.HasSuffix(f.Name, ".yaml") {
			continue
		}
		c, found := Parse(f.Name, "/etc", f.Data, nil)
		if (c == nil) != (len(found.Errors()) > 0) {
			t.Errorf("%s: a file %v with errors %v", f.Name, c != nil, found.Errors())
		}
		if strings.Contains(found.String(), "hunter2") {
			t.Errorf("%s: a secret is repeated: %v", f.Name, found)
		}
		want := strings.TrimSuffix(f.Name, ".yaml") + ".want"
		out.Files = append(out.Files, f, txtar.File{Name: want, Data: []byte(found.String() + "\n")})
	}
	golden.Compare(t, file, txtar.Format(out))
}

func valid(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	out := map[string][]byte{}
	for _, file := range files {
		if out[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Each key becomes what its flag would be given, with paths from the file's folder.
func TestSettings(t *testing.T) {
	for file, src := range valid(t) {
		c, found := Parse(file, "/etc", src, nil)
		if c == nil {
			t.Fatalf("%s:\n%v", file, found)
		}
		var b strings.Builder
		for _, s := range c.Settings {
			fmt.Fprintf(&b, "%d:%d %s --%s %q\n", s.Line, s.Column, s.Key, s.Flag, s.Values)
		}
		golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".want", []byte(b.String()))
	}
}

func TestSchemaIsCheckedIn(t *testing.T) { golden.Compare(t, "config.schema.json", Schema()) }

func compiledSchema(t *testing.T) *jsonschema.Schema {
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

// fits is what an editor's schema checker says of a file.
func fits(t *testing.T, s *jsonschema.Schema, src []byte) error {
	t.Helper()
	var v map[string]any
	if err := yaml.Load(src, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestSchemaAcceptsWhatParses(t *testing.T) {
	s := compiledSchema(t)
	for file, src := range valid(t) {
		if err := fits(t, s, src); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// What the schema refuses, Parse refuses as well.
func TestSchemaRefuses(t *testing.T) {
	s := compiledSchema(t)
	for name, src := range map[string]string{
		"no version":           "policy: p",
		"unknown key":          "{version: 1, polcy: p}",
		"unknown key in group": "{version: 1, limits: {depht: 3}}",
		"a number as a time":   "{version: 1, timeouts: {call: 30}}",
		"a limit of zero":      "{version: 1, limits: {depth: 0}}",
		"another surface":      "{version: 1, surface: flat}",
		"no server":            "{version: 1, upstream: {share: true}}",
		"two servers":          "{version: 1, upstream: {url: 'http://x/', command: [cat]}}",
		"env of a URL":         "{version: 1, upstream: {url: 'http://x/', env: {A: b}}}",
		"half an OAuth client": "{version: 1, upstream: {url: 'http://x/', oauth: {client_id: me}}}",
		"an empty command":     "{version: 1, upstream: {command: []}}",
		"a header's name":      "{version: 1, upstream: {url: 'http://x/', headers: {'A B': c}}}",
	} {
		if err := fits(t, s, []byte(src)); err == nil {
			t.Errorf("%s: the schema accepts it", name)
		}
		if c, _ := Parse("f", "/", []byte(src), nil); c != nil {
			t.Errorf("%s: Parse accepts it", name)
		}
	}
}

// Keys and flags stand for each other one to one.
func TestKeysAreUnique(t *testing.T) {
	paths, flags := map[string]bool{}, map[string]bool{}
	for _, k := range keys {
		if paths[k.key] || k.flag != "" && flags[k.flag] {
			t.Errorf("%s (--%s) stands there twice", k.key, k.flag)
		}
		paths[k.key], flags[k.flag] = true, true
		if k.about() == "" || k.flag == "" && k.key != CommandKey {
			t.Errorf("%s: %+v", k.key, k)
		}
	}
	for path := range groups {
		if !slices.ContainsFunc(keys, func(k setting) bool { return strings.HasPrefix(k.key, path+".") }) {
			t.Errorf("the group %s has no keys", path)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\nupstream: {command: [cat], env: {A: b}}\n"))
	f.Add([]byte("version: 1\nlimits: &a {depth: 3}\nlisten: {<<: *a}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, found := Parse("f.yaml", "/etc", src, nil)
		if (c == nil) != (len(found.Errors()) > 0) {
			t.Errorf("a file %v with errors %v", c != nil, found.Errors())
		}
	})
}
