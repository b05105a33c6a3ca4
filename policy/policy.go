// Package policy is the policy language of fsm-proxy: it compiles what a policy file
// says to one immutable edge table, and answers from that table what exists in a state,
// what may be called, and where each outcome leads.
//
// The package is pure. It does no I/O, starts no goroutine, reads no clock and
// writes no log; a [Policy] never changes after [Parse] and may be used from
// any number of goroutines. Who rests in which [Configuration] is the caller's
// business: [Policy.Decide] and [Policy.Next] take one and return a value.
//
// The way through the language is one direction: bytes → YAML nodes
// (internal/strictyaml) → what the file says (policy/syntax) → the edge table
// (compile.go, overlap.go, table.go) → decisions and steps (decide.go, step.go,
// machine.go). What there is to say of a policy, or of two, to people is package
// report's, which reads the table: findings, comparisons, pictures.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

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

// Place is a place in a policy file.
type Place = strictyaml.Place

// Policy is one compiled policy file. It is immutable and safe for concurrent
// use.
type Policy struct {
	settings syntax.Settings
	file     string
	digest   string
	initial  State
	states   []stateEntry
	byName   map[string]State
	renamed  []Rename
	renames  map[string]State // by a name that is gone, see Adopt

	everywhere [Kinds]layer
	exact      [Kinds][]string // see Exact

	machines sync.Pool         // of *fsm.FSM, see machine.go
	arrivals map[string]Target // by the machines' names for states
}

// Parse reads and compiles a policy file. file is the name to put into findings. The
// findings hold what is wrong with the file, in its order; the policy is nil if, and
// only if, one of them is an error. What is odd about a policy that can be enforced is
// report.Check's to say.
func Parse(file string, src []byte) (*Policy, Findings) {
	p, found := Compile(file, src)
	if found.Err() != nil {
		return nil, found
	}
	return p, found
}

// Compile is Parse for who has more to say of the file: it returns the table also where
// the only errors are globs that contradict each other, and nobody may enforce it then.
func Compile(file string, src []byte) (*Policy, Findings) {
	f, r := syntax.Read(file, src)
	if f == nil {
		return nil, r.Findings()
	}
	p := compile(r, f)
	if p != nil {
		sum := sha256.Sum256(src)
		p.digest = hex.EncodeToString(sum[:])
	}
	return p, r.Findings()
}

// SchemaURL is where the JSON Schema of policy files is published.
const SchemaURL = syntax.SchemaURL

// Schema returns the JSON Schema (draft 2020-12) of policy files, generated from
// the tables that Parse reads by.
func Schema() []byte { return syntax.Schema() }

// Digest returns the SHA-256 of the source bytes in hexadecimal.
func (p *Policy) Digest() string { return p.digest }

// File returns the name that was given to Parse.
func (p *Policy) File() string { return p.file }

// Initial returns the configuration in which a run begins.
func (p *Policy) Initial() Configuration { return Configuration{State: p.initial} }

// StateInfo is what a state says of itself.
type StateInfo struct {
	Name        string
	Description string
	Terminal    bool
	Inherits    bool  // takes what everywhere binds
	Place       Place // where its name stands
}

// States returns every state in the file's order, so that its index is its
// State.
func (p *Policy) States() []StateInfo {
	out := make([]StateInfo, len(p.states))
	for i := range p.states {
		out[i] = p.states[i].StateInfo
	}
	return out
}

// State returns what s says of itself, the zero StateInfo if there is no such
// state.
func (p *Policy) State(s State) StateInfo {
	if !p.has(s) {
		return StateInfo{}
	}
	return p.states[s].StateInfo
}

// StateName returns the name of s, "" if there is no such state.
func (p *Policy) StateName(s State) string { return p.State(s).Name }

// StateByName finds a state by its name.
func (p *Policy) StateByName(name string) (State, bool) {
	s, ok := p.byName[name]
	return s, ok
}

func (p *Policy) has(s State) bool { return s >= 0 && int(s) < len(p.states) }
