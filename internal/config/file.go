// Package config is what `fsm-proxy run` can be told, by flags, by the environment and
// by a file, which groups by noun what flags make clumsy, and is read as strictly as a
// policy.
//
// One table, in keys.go, says of each setting its flag and its key, where it goes, what
// is built in, what it is for and what it needs. Flags, help, completion, checks, the
// reading of the file and its JSON Schema come from it. What the file says is returned
// as the command line would give it, each with its place, for whoever sets the flags that
// neither the command line nor the environment has set.
package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// What is found about a configuration file.
type (
	Finding  = strictyaml.Finding
	Findings = strictyaml.Findings
)

// CommandKey is the one key that stands for no flag, but for what follows the --
// on the command line.
const CommandKey = "upstream.command"

// File is what one configuration file says. It does not change.
type File struct {
	// Name is the name that was given to Parse.
	Name string
	// Settings are the keys that are given, in the file's order.
	Settings []Setting
}

// Setting is one key with its values.
type Setting struct {
	// Key is the key's path, like "listen.address".
	Key string
	// Flag is the flag that it stands for; "" for CommandKey.
	Flag string
	// Values are what the flag is given: one, or any number where it is Many.
	// Paths are resolved. They can be secrets, and are for no message.
	Values []string
	Many   bool
	// Line and Column are where the value stands.
	Line, Column int
}

// In reports whether the key is a group's, or the group itself.
func (s Setting) In(group string) bool { return s.Key == group || strings.HasPrefix(s.Key, group+".") }

// Same reports whether two settings say the same, wherever they say it.
func (s Setting) Same(other Setting) bool {
	return s.Key == other.Key && slices.Equal(s.Values, other.Values)
}

// Find returns the setting of a key; ok is false where the file does not give it.
func (f *File) Find(key string) (s Setting, ok bool) {
	i := slices.IndexFunc(f.Settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return f.Settings[i], true
}

// Without returns the file without one group.
func (f *File) Without(group string) *File {
	settings := slices.DeleteFunc(slices.Clone(f.Settings), func(s Setting) bool { return s.In(group) })
	return &File{Name: f.Name, Settings: settings}
}

// Error is an error of a value, as a finding at its place.
func (f *File) Error(s Setting, message string) Finding {
	return Finding{File: f.Name, Line: s.Line, Column: s.Column, Code: "value", Message: message}
}

// language is the configuration file in messages. Headers and variables can be
// secrets, so no message repeats what may be one.
var language = strictyaml.Language{
	Name:    "a configuration",
	Begin:   `"version: 1" and "policy: FILE"`,
	Secrets: true,

	Mistaken: func(has func(string) bool) string {
		switch {
		case has("policy"), has("upstream"):
			return ""
		case has("states"):
			return "a policy, and no configuration; give it with --policy FILE"
		case has("mcpServers"), has("servers"):
			return "a client's configuration, and none of fsm-proxy"
		}
		return ""
	},
}

// Parse reads and checks a configuration file. name is put into findings; relative
// paths in the file begin at folder. accept says what is wrong with a value beyond
// what the table knows, as the flag does that it stands for; nil accepts all. The
// findings hold everything found, in the file's order; the file is nil if, and only
// if, one of them is an error.
func Parse(name, folder string, src []byte, accept func(Setting) error) (*File, Findings) {
	r := strictyaml.NewReader(name, language)
	root := r.Tree(src)
	if root == nil {
		return nil, r.Findings()
	}
	into := &reading{file: File{Name: name}, folder: folder, accept: accept}
	strictyaml.ReadFields(r, root, language.Name, fieldsOf(""), into)
	if !into.version {
		r.Errorf(strictyaml.PlaceOf(root), "version", "version is missing; write \"version: 1\"")
	}
	if !r.OK() {
		return nil, r.Findings()
	}
	return &into.file, r.Findings()
}

// reading is a file while it is read.
type reading struct {
	file    File
	folder  string
	accept  func(Setting) error
	version bool
}

func readVersion(r *strictyaml.Reader, e entry, into *reading) {
	into.version = true
	r.Version(e)
}

// setting reads one key.
func (x *reading) setting(r *strictyaml.Reader, e entry, k setting) {
	kind := k.of()
	values := kind.read(r, e, x.folder)
	if values == nil {
		return
	}
	place := strictyaml.PlaceOf(e.Value)
	s := Setting{Key: k.key, Flag: k.flag, Values: values, Many: kind.many, Line: place.Line, Column: place.Column}
	if x.accept != nil {
		if err := x.accept(s); err != nil {
			r.Errorf(place, "value", "%s: %v", e.Name(), err)
			return
		}
	}
	x.file.Settings = append(x.file.Settings, s)
}

// group reads a mapping of keys. Nothing is a group of which all is left out.
func (x *reading) group(r *strictyaml.Reader, e entry, path string) {
	if strictyaml.IsNothing(e.Value) {
		return
	}
	if e.Value.Kind != yaml.MappingNode {
		r.Errorf(strictyaml.PlaceOf(e.Value), "type", "%s: wants a mapping of %s, not %s", e.Name(), strictyaml.Listed(names(path)), kindOf(e.Value))
		return
	}
	strictyaml.ReadFields(r, e.Value, path, fieldsOf(path), x)
	checkGroup(r, e, path)
}

func names(path string) []string {
	var out []string
	for _, f := range fieldsOf(path) {
		out = append(out, f.Name)
	}
	return out
}

// checkGroup checks that the keys of a group go together.
func checkGroup(r *strictyaml.Reader, e entry, path string) {
	g, given := groups[path], map[string]entry{}
	for _, x := range r.Entries(e.Value) {
		given[x.Name()] = x
	}
	for _, name := range g.required {
		if _, ok := given[name]; !ok {
			r.Errorf(e.Place(), "missing", "%s: %s is missing; it needs %s", path, name, strictyaml.And(g.required))
		}
	}
	for _, x := range r.Entries(e.Value) {
		for _, name := range g.needs[x.Name()] {
			if _, ok := given[name]; !ok {
				r.Errorf(x.Place(), "missing", "%s: %s belongs to %s, which is missing", path, x.Name(), name)
			}
		}
	}
	if len(g.oneOf) == 0 {
		return
	}
	var there []entry
	for _, name := range g.oneOf {
		if x, ok := given[name]; ok {
			there = append(there, x)
		}
	}
	switch n := len(there); {
	case n == 0:
		r.Errorf(e.Place(), "missing", "%s: neither %s; give one of them", path, strings.Join(g.oneOf, " nor "))
	case n > 1:
		r.Errorf(there[n-1].Place(), "both", "%s: both %s; give one of them", path, strictyaml.And(g.oneOf))
	}
}

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
