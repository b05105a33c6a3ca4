package policy

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// What is found about a policy file, in the words of the strict reader.
type (
	Level    = strictyaml.Level
	Finding  = strictyaml.Finding
	Findings = strictyaml.Findings
)

// The levels of findings, gravest first.
const (
	LevelError   = strictyaml.LevelError
	LevelWarning = strictyaml.LevelWarning
	LevelNote    = strictyaml.LevelNote
)

// at is a place in the file.
type at = strictyaml.Place

// entry is one key of a mapping with its value.
type entry = strictyaml.Entry

// field is one key of a mapping in the policy file.
type field[T any] = strictyaml.Field[reader, T]

// schema is one JSON Schema.
type schema = strictyaml.Schema

// dialect is the policy language, in messages.
var dialect = strictyaml.Language{
	Name:  "a policy",
	Begin: `"version: 1", "initial: STATE" and "states:"`,

	Mistaken: func(has func(string) bool) string {
		switch {
		case has("states"), has("initial"):
			return ""
		case has("mcpServers"), has("servers"):
			return `a client's configuration, and no policy; give the file that stands in it behind "--policy"`
		case has("upstream") && has("tools"):
			return "a lock file, and no policy; give the policy beside it, whose lock is read with it"
		case has("policy"), has("upstream"), has("listen"):
			return "a configuration file, and no policy; give it with --config FILE"
		}
		return ""
	},
}

// reader reads one policy file and gathers what it finds.
type reader struct{ *strictyaml.Reader }

func newReader(file string) reader { return reader{strictyaml.NewReader(file, dialect)} }

// given is a text that stands in the file.
func given(t strictyaml.Text) text { return text{at: t.Place, value: t.Value, given: true} }

// keyText is the text of a key.
func keyText(e entry) text { return text{at: e.Place(), value: e.Name(), given: true} }

func (r reader) scalar(e entry, want string) (text, bool) {
	t, ok := r.Scalar(e, want)
	if !ok {
		return text{}, false
	}
	return given(t), true
}

// key is a row of a table of fields.
func key[T any](name, doc string, schema func() *schema, read func(reader, entry, *T)) field[T] {
	return field[T]{Name: name, Doc: doc, Schema: schema, Read: read}
}
