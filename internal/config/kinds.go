package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/days"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// kind is what a key holds: its schema, and how its values are read, as its flag
// takes them. read returns nil where it has reported an error.
type kind struct {
	schema func() *schema
	read   func(r *strictyaml.Reader, e entry, folder string) []string
	many   bool     // the flag takes any number of values
	commas bool     // which may have commas in them
	words  []string // the closed set of values
}

// anyText is the schema of a text, which need not be quoted.
var anyText = schema{Type: []string{"string", "number", "boolean"}}

// of returns what makes copies of a schema.
func of(s schema) func() *schema {
	return func() *schema { c := s; return &c }
}

// The kinds of values. Numbers and booleans are their text where a text is wanted.
var (
	text = kind{schema: of(anyText), read: readText}
	file = kind{schema: of(anyText), read: readFile}
	// destination is a file, or a stream of the process's own.
	destination = kind{schema: of(anyText), read: readDestination}
	boolean     = kind{schema: strictyaml.Bool, read: readBoolean(false)}
	negated     = kind{schema: strictyaml.Bool, read: readBoolean(true)}
	number      = kind{schema: of(schema{Type: "integer", Minimum: 1}), read: readNumber(1)}
	count       = kind{schema: of(schema{Type: "integer"}), read: readNumber(0)}
	duration    = kind{schema: of(schema{Type: "string", Pattern: days.Pattern}), read: readDuration}
	size        = kind{schema: of(schema{Type: []string{"integer", "string"}, Minimum: 1, Pattern: `^ *[0-9]+ *([KkMmGg]?[Ii]?[Bb])? *$`}), read: readText}
	list        = kind{schema: strictyaml.List(of(anyText)), read: readList, many: true}
	pointers    = kind{schema: strictyaml.List(of(anyText)), read: readList, many: true, commas: true}
	some        = kind{schema: of(schema{Type: "array", Items: &anyText, MinItems: 1}), read: readSome, many: true} // a list that is not empty
	command     = kind{schema: of(schema{Type: "array", Items: &anyText, MinItems: 1}), read: readCommand, many: true}
	variables   = kind{schema: of(schema{Type: "object", PropertyNames: &schema{Pattern: "^[^=]+$"}, AdditionalProperties: &anyText}), read: readVariables, many: true, commas: true}
	headers     = kind{schema: of(schema{Type: "object", PropertyNames: &schema{Pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"}, AdditionalProperties: &anyText}), read: readHeaders, many: true, commas: true}
)

// word is one of a closed set.
func word(words []string) kind {
	return kind{words: words, schema: strictyaml.Enum(words), read: func(r *strictyaml.Reader, e entry, _ string) []string {
		if i, ok := r.Choice(e, words); ok {
			return []string{words[i]}
		}
		return nil
	}}
}

func readText(r *strictyaml.Reader, e entry, _ string) []string {
	t, ok := r.Scalar(e, "a text")
	if !ok {
		return nil
	}
	if t.Value == "" {
		r.Errorf(t.Place, "value", "%s: the text is empty; write one, or leave the key out", e.Name())
		return nil
	}
	return []string{t.Value}
}

// readFile reads a path. A relative one begins at the file's own folder.
func readFile(r *strictyaml.Reader, e entry, folder string) []string {
	values := readText(r, e, folder)
	if values != nil {
		values[0] = resolve(folder, values[0])
	}
	return values
}

func readDestination(r *strictyaml.Reader, e entry, folder string) []string {
	values := readText(r, e, folder)
	if values != nil && values[0] != "stderr" {
		values[0] = resolve(folder, values[0])
	}
	return values
}

// resolve leaves an absolute path alone: cleaning it would change its meaning
// where a link is followed by "..".
func resolve(folder, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// readBoolean reads a truth value; negate: the flag says the opposite.
func readBoolean(negate bool) func(*strictyaml.Reader, entry, string) []string {
	return func(r *strictyaml.Reader, e entry, _ string) []string {
		b, ok := r.Boolean(e)
		if !ok {
			return nil
		}
		return []string{strconv.FormatBool(b != negate)}
	}
}

// readNumber reads a number, 0 only where the least is.
func readNumber(least int) func(*strictyaml.Reader, entry, string) []string {
	return func(r *strictyaml.Reader, e entry, _ string) []string {
		n := e.Value
		digits := n.Value != "" && strings.Trim(n.Value, "0123456789") == ""
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || !digits || least > 0 && strings.Trim(n.Value, "0") == "" {
			r.WrongType(e, fmt.Sprintf("a number from %d on", least))
			return nil
		}
		return []string{n.Value}
	}
}

func readDuration(r *strictyaml.Reader, e entry, _ string) []string {
	t, ok := r.Scalar(e, "a time like 30s, 5m, 1h30m or 7d")
	if !ok {
		return nil
	}
	if d, err := days.Parse(t.Value); err != nil || d < 0 {
		r.Errorf(t.Place, "value", "%s: %s is no time; write it like 30s, 5m, 1h30m or 7d", e.Name(), strictyaml.Quote(t.Value))
		return nil
	}
	return []string{t.Value}
}

func readList(r *strictyaml.Reader, e entry, _ string) []string {
	values := []string{}
	for _, t := range r.Items(e, "a list of texts") {
		if t.Value == "" {
			r.Errorf(t.Place, "value", "%s: an empty text; remove it", e.Name())
			continue
		}
		values = append(values, t.Value)
	}
	return values
}

// readSome reads a list whose absence means something else than an empty one.
func readSome(r *strictyaml.Reader, e entry, folder string) []string {
	values := readList(r, e, folder)
	if values != nil && len(values) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "%s: the list is empty; write one, or leave the key out", e.Name())
		return nil
	}
	return values
}

// readCommand reads a program with its arguments, which may repeat and be empty.
func readCommand(r *strictyaml.Reader, e entry, folder string) []string {
	if e.Value.Kind != yaml.SequenceNode || len(e.Value.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "type", "%s: wants a list of the program and its arguments, like [npx, -y, SERVER], not %s", e.Name(), kindOf(e.Value))
		return nil
	}
	var words []string
	for _, c := range e.Value.Content {
		n := strictyaml.Resolve(c)
		if n.Kind != yaml.ScalarNode || strictyaml.IsNothing(n) || strings.ContainsRune(n.Value, 0) {
			r.Errorf(strictyaml.PlaceOf(c), "type", "%s: wants texts, not %s", e.Name(), kindOf(n))
			return nil
		}
		words = append(words, n.Value)
	}
	if words[0] == "" {
		r.Errorf(strictyaml.PlaceOf(e.Value.Content[0]), "value", "%s: the program has no name; give one", e.Name())
		return nil
	}
	if strings.ContainsRune(filepath.ToSlash(words[0]), '/') {
		words[0] = resolve(folder, words[0])
	}
	return words
}

// kindOf is a node in a message that must not repeat it, since it can be a secret.
func kindOf(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && !strictyaml.IsNothing(n) {
		return "one text"
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return "an empty list"
	}
	return strictyaml.NodeText(n)
}

func readVariables(r *strictyaml.Reader, e entry, _ string) []string {
	return readPairs(r, e, "=", func(name, value string) string {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return "is no name of a variable"
		case strings.ContainsRune(value, 0):
			return "has a value that no variable can have"
		}
		return ""
	})
}

func readHeaders(r *strictyaml.Reader, e entry, _ string) []string {
	return readPairs(r, e, ": ", func(name, value string) string {
		switch {
		case name == "" || strings.ContainsFunc(name, notOfToken):
			return "is no name of a header"
		case strings.ContainsFunc(value, isControl):
			return "has a value that no header can have, with line breaks or control characters in it"
		}
		return ""
	})
}

// notOfToken reports what cannot stand in a header's name (RFC 9110, section 5.6.2).
func notOfToken(c rune) bool {
	alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// readPairs reads a mapping of names to values, which can be secrets. fault says
// what is wrong with one, "" if nothing is.
func readPairs(r *strictyaml.Reader, e entry, sign string, fault func(name, value string) string) []string {
	if e.Value.Kind != yaml.MappingNode {
		r.Errorf(strictyaml.PlaceOf(e.Value), "type", "%s: wants a mapping of names to values, not %s; put a space after each colon", e.Name(), kindOf(e.Value))
		return nil
	}
	values := []string{}
	for _, x := range r.Entries(e.Value) {
		if v := x.Value; v.Kind != yaml.ScalarNode || strictyaml.IsNothing(v) {
			r.Errorf(strictyaml.PlaceOf(v), "type", "%s: %s wants a text, not %s", e.Name(), r.QuoteKey(x), kindOf(v))
			continue
		}
		if wrong := fault(x.Name(), x.Value.Value); wrong != "" {
			r.Errorf(x.Place(), "value", "%s: %s %s", e.Name(), r.QuoteKey(x), wrong)
			continue
		}
		values = append(values, x.Name()+sign+x.Value.Value)
	}
	slices.Sort(values)
	return values
}
