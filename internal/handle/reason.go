package handle

import "fmt"

// Reason says why the argument cannot be added to a tool. The zero value is that it
// can.
type Reason uint8

// The reasons.
const (
	Fits          Reason = iota
	NoSchema             // there is no inputSchema, or it is no object
	Ambiguous            // a member that matters is there twice, or has a lookalike
	NotObject            // the root says that it is no object, or what it says cannot be read
	Reference            // the root is, or may be, another schema
	Recursive            // the root may be referred to from within, where the argument has no business
	Combined             // the root is combined with other schemas, which may refuse the argument
	Closed               // the root refuses members whatever properties says
	ArgumentTaken        // the tool has an argument of that name, or one that reads alike
	NameTaken            // the tool has the name of one of this package's own
)

var reasons = [...]struct{ word, text string }{
	Fits:          {"fits", ""},
	NoSchema:      {"no-schema", "it has no inputSchema that is an object"},
	Ambiguous:     {"ambiguous", "its inputSchema says something twice"},
	NotObject:     {"not-object", "its inputSchema is of no object with properties"},
	Reference:     {"reference", "its inputSchema is a reference to another one"},
	Recursive:     {"recursive", "its inputSchema is referred to from within itself"},
	Combined:      {"combined", "its inputSchema is combined with other schemas"},
	Closed:        {"closed", "its inputSchema limits what arguments there can be beyond its properties"},
	ArgumentTaken: {"argument-taken", "it has an argument of this name already"},
	NameTaken:     {"name-taken", "the proxy has a tool of this name itself"},
}

// String is the reason in one word, for machines.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].word
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Text is the rest of a sentence that begins with the tool, and "because".
func (r Reason) Text() string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return r.String()
}
