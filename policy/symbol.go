package policy

import (
	"cmp"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

// Kind is what a name names. The zero value is Tool.
type Kind uint8

// The kinds of names, in the order of the policy file's keys.
const (
	Tool Kind = iota
	Resource
	Prompt
)

// Kinds is the number of kinds, for arrays indexed by Kind.
const Kinds = len(syntax.Kinds)

// AllKinds lists every kind, for loops.
var AllKinds = [Kinds]Kind{Tool, Resource, Prompt}

// String returns "tool", "resource" or "prompt".
func (k Kind) String() string {
	if int(k) < Kinds {
		return syntax.Kinds[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText returns the kind's word, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Plural returns the policy file's key for the kind: "tools", "resources" or
// "prompts".
func (k Kind) Plural() string { return k.String() + "s" }

// Outcome is what became of one request that was sent upstream. The zero value
// is no outcome; Next refuses it.
type Outcome uint8

// The outcomes of a request.
const (
	_       Outcome = iota
	Success         // a result without isError: true
	Error           // isError: true, or a JSON-RPC error
	Unknown         // sent, and no readable answer: it may have happened
)

// outcomes is the number of outcomes, for arrays indexed by Outcome.index.
const outcomes = len(syntax.Outcomes)

// AllOutcomes lists every outcome.
var AllOutcomes = [outcomes]Outcome{Success, Error, Unknown}

// String returns "success", "error" or "unknown".
func (o Outcome) String() string {
	if o.valid() {
		return syntax.Outcomes[o.index()]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// MarshalText returns the outcome's word, for JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// valid reports whether o is one of the three outcomes.
func (o Outcome) valid() bool { return o >= Success && o <= Unknown }

// index returns o's place in an array of outcomes; o must be valid.
func (o Outcome) index() int { return int(o - Success) }

// State is the index of a state among the policy's states, in the file's order.
// It means nothing without the policy that it comes from.
type State int32

// Configuration is what a run rests in: a state, and whether the run is
// complete. It is comparable.
type Configuration struct {
	State    State
	Complete bool
}

// Symbol is what was asked for: a name of a kind, and the case that its
// argument selected, if its binding is split by one. It is comparable.
type Symbol struct {
	Kind Kind
	Name string
	Case string
}

// Rule is where a binding stands in the policy file, so that every verdict can
// say why. Line and Column count from 1, columns in characters.
type Rule struct {
	File         string
	Line, Column int
	Pattern      string
}

// String returns "file:line:column", or "" for the zero Rule.
func (r Rule) String() string {
	if r.Line == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", r.File, r.Line, r.Column)
}

// Place returns where the rule stands in its file.
func (r Rule) Place() Place { return Place{Line: r.Line, Column: r.Column} }

// Compare orders rules by their place in one file.
func (r Rule) Compare(o Rule) int {
	return cmp.Or(cmp.Compare(r.Line, o.Line), cmp.Compare(r.Column, o.Column))
}
