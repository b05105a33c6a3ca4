// Package syntax reads policy files: from bytes to a tree of what the file says, in
// which every part has its place and no name is resolved yet. What the tree means is
// package policy's business.
//
// A file with parts is read with them (load.go), and made one file without (flatten.go).
//
// A construct of the language stands in three places here: its key in a table of
// keys.go, from which the JSON Schema is made as well; what it says in a type of this
// file; and a reader, in read.go, that checks what one key alone can be wrong about.
package syntax

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// The words of the language's closed sets. An index into one of them is what the tree
// has in its place.
var (
	Kinds    = [...]string{"tool", "resource", "prompt"}
	Outcomes = [...]string{"success", "error", "unknown"}
	Asks     = [...]string{"sampling", "elicitation", "roots"}

	Completions = []string{"restart", "stop"}
	Templates   = []string{"refuse", "empty"}
	Reloads     = []string{"move", "pin"}
	Stranded    = []string{"keep", "restart", "refuse"}
	Pins        = []string{"off", "warn", "refuse"}
	Senders     = []string{"agent", "operator"}
)

// resource is the kind that has no arguments.
const resource = 1

// File is what a policy file says.
type File struct {
	Settings
	Initial    Text // see HasInitial; not given where it is no name
	Registers  []Register
	AtMost     AtMost
	Everywhere Scope
	States     []State
	Renamed    []Rename
	Use        []Use
	Settable   []Text     // the keys of Settings that are given
	Standings  []Standing // of a file that was flattened: see Flatten

	RenamedParts []Rename // likewise

	HasVersion, HasInitial, HasStates bool
}

// Settings are what a policy says beside its automaton.
type Settings struct {
	Name, Description, Instructions string

	OnComplete, Templates, OnReload, Stranded, Pin Choice

	Validate    bool
	UpstreamMay [len(Asks)]bool
	Passthrough []string
}

// Place is a place in the file.
type Place = strictyaml.Place

// Text is a text with its place.
type Text struct {
	Place
	Value string
	Given bool
	// Joined is whether a slip may hide in it: an unquoted name with no value,
	// which NAME:STATE is in YAML.
	Joined bool
	// Resolved is whether YAML reads it as no text: a case without quotes that is a
	// number, a boolean or null.
	Resolved bool
}

// Choice is one word of a closed set, the first where none is given.
type Choice struct {
	Place
	Index int
	Given bool
}

// Rename is one entry of renamed.
type Rename struct{ Old, New Text }

// Scope is what one place binds: a state, or everywhere.
type Scope struct {
	Place
	Kinds   [len(Kinds)][]Entry
	Signals []Entry
}

// State is one state.
type State struct {
	Scope
	Name        Text
	Description string
	For         Text // as an expression over who
	AtMost      AtMost
	After       After
	Asking      Asking
	Terminal    bool
	Without     bool // everywhere: false
	Part        Text
	Exits       []Exit
	HasExits    bool
	Within      string // of a file that was flattened: the part that it is a state of
}

// Entry is a name with its value: a binding, or a case of one.
type Entry struct {
	Name  Text
	Value Value
}

// Value is the value of a binding, of a case, or of one of several alternatives.
type Value struct {
	Place
	Conditions
	None         bool
	Bare         bool                      // nothing is said: a name alone in a mapping
	Short        bool                      // one word, which is on_success
	Null         Text                      // the word that said nothing: null or ~
	Outcomes     []Named                   // that the result decides, in order
	Edges        [len(Outcomes) + 1]Target // of each outcome that needs no result, and on_any
	Named        []NamedTarget             // of outcomes: on_NAME
	Set          []Assignment              // beside the edges
	By           Text
	Description  string // of a signal
	From         Choice // who sends a signal, of Senders
	Cases        []Entry
	HasCases     bool
	Alternatives []Value // in place of all else
	Shared       string  // of a file that was flattened: what binds it in several states, see Flatten
}

// Conditions are what has to hold before a call goes upstream, and how it goes.
type Conditions struct {
	For           Text // as an expression over who
	When, Because Text
	AtMost        AtMost
	Approve       Approve
	Exclusive     bool
	Irreversible  bool
	Timeout       int // in seconds; 0: none is given
}

// After is a clock: where a run goes by itself that has been in a state for so long.
type After struct {
	Place
	Seconds int // 0: there is none
	Target
}

// Asking is what the upstream may ask of the client in a state.
type Asking struct {
	Given bool
	Words []Text // of Asks, each once
}

// AtMost is how often something may be done, 0 where nothing is said.
type AtMost struct {
	Place
	Own       [len(Spans)]int
	Principal [len(Spans)]int // of which a run and a visit of a state have none
}

// Given reports whether any limit is.
func (a *AtMost) Given() bool { return *a != AtMost{Place: a.Place} }

// Spans are what limits count over. The first two are no windows.
var Spans = [...]string{"run", "state", "minute", "hour", "day"}

// Named is an expression with a name.
type Named struct{ Name, Expression Text }

// NamedTarget is the edge of a named outcome. Name is the outcome's, without on_.
type NamedTarget struct {
	Name Text
	Target
}

// Assignment is what becomes of one register.
type Assignment struct {
	Register Text
	Operation
	Values []Text // expressions: one where it is assigned, none where it is emptied
}

// Operation is how a register is changed. The zero value assigns.
type Operation uint8

// The operations.
const (
	Assign Operation = iota
	Empty            // to none
	Add
	Remove
)

// Register is one entry of registers. Max is of a set, 0 where none is given.
type Register struct {
	Name Text
	Type Choice // of RegisterTypes
	Max  int
}

// RegisterTypes are the types of registers, the last of which is written {set: text}.
var RegisterTypes = []string{"text", "number", "boolean", "counter", "set"}

// RegisterSet is the place of sets among RegisterTypes.
const RegisterSet = 4

// Target is where an edge leads; the zero value stays.
type Target struct {
	At       Place // of its key
	Given    bool
	To       Text // not given: this state
	Terminal bool
	Return   bool   // in place of To: where the state, or part, was entered from
	Unit     string // of a file that was flattened: what it returns from; "": the policy's own state that the run is in
	Set      []Assignment
	Exits    []Place // of a file that was flattened: by which it leads out of parts, the innermost first
}

// The places of edges that others take theirs from.
const (
	onError = 1
	onAny   = len(Outcomes)
)

// Edge returns the edge of an outcome, and whether the file gives it: its own, else
// on_any's; else, for unknown only, on_error's, which is not given.
func (v *Value) Edge(outcome int) (t Target, given bool) {
	switch {
	case v.Edges[outcome].Given:
		return v.Edges[outcome], true
	case v.Edges[onAny].Given:
		return v.Edges[onAny], true
	case outcome > onError:
		return v.Edges[onError], false
	}
	return Target{}, false
}

// NamedEdge is Edge for an outcome that has a name.
func (v *Value) NamedEdge(name string) (t Target, given bool) {
	for _, x := range v.Named {
		if x.Name.Value == name {
			return x.Target, true
		}
	}
	return v.Edges[onAny], v.Edges[onAny].Given
}

// follows reports whether anything is said of what follows a call.
func (v *Value) follows() bool {
	for _, t := range v.Edges {
		if t.Given {
			return true
		}
	}
	return len(v.Outcomes)+len(v.Named)+len(v.Set) > 0
}
