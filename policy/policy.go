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
// (internal/strictyaml) → what the file says (policy/syntax) → where it has parts, what
// it says with them (parts.go, syntax.Flatten) → the alphabet and the edge table
// (compile.go, overlap.go, table.go) → decisions and steps (automaton.go, returns.go). What there is to say of a policy, or of two, to people is package report's, which reads the
// table: findings, comparisons, pictures.
package policy

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
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
	parts    composition
	returns  returnTable

	everywhere [symbolKinds]layer
	exact      [symbolKinds][]string // see Exact

	remembered

	machines sync.Pool         // of *fsm.FSM, see enterMachines
	arrivals map[string]Target // by the machines' names for states
}

// remembered is what a policy asks for beside states.
type remembered struct {
	limits    Limits           // of all calls of a run
	limited   map[string]Place // where all limits stand, by their keys
	registers []Register
	schema    *register.Schema
	guarded   bool             // something hangs on more than the state
	asksWho   bool             // what is shown hangs on who asks
	followed  []*guard.Program // the parts of guards that lists follow, of the run alone
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
	return CompileParts(file, src, nil)
}

// SchemaURL is where the JSON Schema of policy files is published.
const SchemaURL = syntax.SchemaURL

// Schema returns the JSON Schema (draft 2020-12) of policy files, generated from
// the tables that Parse reads by.
func Schema() []byte { return syntax.Schema() }

// Digest returns the SHA-256 of the source bytes in hexadecimal; of a policy with parts,
// one of all its files.
func (p *Policy) Digest() string { return p.digest }

// File returns the name that was given to Parse.
func (p *Policy) File() string { return p.file }

// Initial returns the configuration in which a run begins.
func (p *Policy) Initial() Configuration { return Configuration{State: p.initial} }

// Guarded reports whether some decision, outcome or register hangs on an expression.
func (p *Policy) Guarded() bool { return p.guarded }

// Follows reports whether lists of a state follow what the run remembers.
func (p *Policy) Follows(s State) bool { return p.has(s) && len(p.states[s].follows) > 0 }

// Holds says which of the guards that lists follow in a state are true, as a View has it:
// "" where they follow none.
func (p *Policy) Holds(s State, facts *guard.Call) string {
	if !p.Follows(s) {
		return ""
	}
	all := bytes.Repeat([]byte{'0'}, len(p.followed))
	for _, i := range p.states[s].follows {
		if ok, _ := p.followed[i].Holds(facts); ok {
			all[i] = '1'
		}
	}
	return string(all)
}

// View is where lists are shown of. It is comparable.
type View struct {
	Configuration
	Holds string     // see [Policy.Holds]; "": as if all of them did
	Who   *guard.Who // who asks; nil: nobody is known
}

// AsksWho reports whether what is shown hangs on who asks.
func (p *Policy) AsksWho() bool { return p.asksWho }

// StateInfo is what a state says of itself.
type StateInfo struct {
	Name        string
	Description string
	Terminal    bool
	Inherits    bool   // takes what everywhere binds
	Place       Place  // where its name stands
	Part        string // the part that it is a state of; "": it is the policy's own
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

// Completion is what follows a terminal edge. The zero value is Restart.
type Completion uint8

// What follows a terminal edge.
const (
	Restart Completion = iota // the same step begins a new run at the initial state
	Stop                      // the run rests, complete; nothing is offered any more
)

// String returns the policy file's word.
func (c Completion) String() string { return word(syntax.Completions, c) }

// Templates is how resources/templates/list is answered. The zero value is
// TemplatesRefuse.
type Templates uint8

// How resources/templates/list is answered.
const (
	TemplatesRefuse Templates = iota // an error that says why
	TemplatesEmpty                   // a valid empty list, for clients that stumble over the error
)

// String returns the policy file's word.
func (t Templates) String() string { return word(syntax.Templates, t) }

// Reload is what a reload does to runs under way. The zero value is ReloadMove.
type Reload uint8

// What a reload does to runs under way.
const (
	ReloadMove Reload = iota // they move to the new policy
	ReloadPin                // they stay on the policy that they began with
)

// String returns the policy file's word.
func (r Reload) String() string { return word(syntax.Reloads, r) }

// Stranded is what becomes of a run whose state is gone after a reload. The
// zero value is StrandedKeep.
type Stranded uint8

// What becomes of a run whose state is gone.
const (
	StrandedKeep Stranded = iota
	StrandedRestart
	StrandedRefuse
)

// String returns the policy file's word.
func (s Stranded) String() string { return word(syntax.Stranded, s) }

// Pin is what a tool definition that differs from the lock file does. The zero
// value is PinOff.
type Pin uint8

// What a changed tool definition does.
const (
	PinOff Pin = iota
	PinWarn
	PinRefuse
)

// String returns the policy file's word.
func (p Pin) String() string { return word(syntax.Pins, p) }

func word[T ~uint8](words []string, v T) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("%T(%d)", v, uint8(v))
}

// UpstreamMay is the set of requests that the upstream may send to the client.
// The zero value allows none.
type UpstreamMay struct {
	Sampling, Elicitation, Roots bool
}

// Rename says that a state has a new name: a run that rests in Old of the policy
// before moves to New of this one.
type Rename struct{ Old, New string }

// Name returns the policy's name, "" if it has none.
func (p *Policy) Name() string { return p.settings.Name }

// Description returns the policy's description, "" if it has none.
func (p *Policy) Description() string { return p.settings.Description }

// Instructions returns what is appended to the upstream's instructions.
func (p *Policy) Instructions() string { return p.settings.Instructions }

// OnComplete returns what follows a terminal edge.
func (p *Policy) OnComplete() Completion { return Completion(p.settings.OnComplete.Index) }

// SaysOnComplete reports whether the file says it.
func (p *Policy) SaysOnComplete() bool { return p.settings.OnComplete.Given }

// Validate reports whether arguments are checked against the listed inputSchema
// before a call is sent.
func (p *Policy) Validate() bool { return p.settings.Validate }

// Templates returns how resources/templates/list is answered.
func (p *Policy) Templates() Templates { return Templates(p.settings.Templates.Index) }

// Words are what the file says for it, in the order of the language.
func (may UpstreamMay) Words() []string {
	return slices.DeleteFunc(slices.Clone(syntax.Asks[:]), func(name string) bool { return !may.Permits(name) })
}

// Permits reports whether the upstream may ask by a capability of the client's.
func (may UpstreamMay) Permits(capability string) bool {
	switch capability {
	case "sampling":
		return may.Sampling
	case "elicitation":
		return may.Elicitation
	case "roots":
		return may.Roots
	}
	return false
}

// And returns what both permit.
func (may UpstreamMay) And(other UpstreamMay) UpstreamMay {
	return UpstreamMay{may.Sampling && other.Sampling, may.Elicitation && other.Elicitation, may.Roots && other.Roots}
}

// upstreamMay is a set that syntax.Asks are the names of.
func upstreamMay(of [len(syntax.Asks)]bool) UpstreamMay {
	return UpstreamMay{Sampling: of[0], Elicitation: of[1], Roots: of[2]}
}

// UpstreamMay returns what the upstream may ask of the client, in whatever state: a state may
// let it ask less.
func (p *Policy) UpstreamMay() UpstreamMay { return upstreamMay(p.settings.UpstreamMay) }

// UpstreamMayIn returns what the upstream may ask while a run is in a state, and in Everywhere what
// it may in all of them, under the policy whose settings hold.
func (p *Policy) UpstreamMayIn(s State, settings *Policy) UpstreamMay {
	may := settings.UpstreamMay()
	switch {
	case p.has(s):
		return may.And(p.states[s].may)
	case s != Everywhere:
		return UpstreamMay{}
	}
	for i := range p.states {
		may = may.And(p.states[i].may)
	}
	return may
}

// Passthrough reports whether the policy lets an otherwise refused method, or
// vendor capability, through.
func (p *Policy) Passthrough(method string) bool {
	return slices.Contains(p.settings.Passthrough, method)
}

// Passthroughs returns the methods that are carried as they come, sorted.
func (p *Policy) Passthroughs() []string { return slices.Sorted(slices.Values(p.settings.Passthrough)) }

// OnReload returns what a reload of this policy does to runs under way.
func (p *Policy) OnReload() Reload { return Reload(p.settings.OnReload.Index) }

// Stranded returns what becomes of runs whose state this policy no longer has.
func (p *Policy) Stranded() Stranded { return Stranded(p.settings.Stranded.Index) }

// Pin returns what a tool definition does that differs from the lock file.
func (p *Policy) Pin() Pin { return Pin(p.settings.Pin.Index) }

// PinPlace returns where the file says it, the zero Place if it does not.
func (p *Policy) PinPlace() Place { return p.settings.Pin.Place }

// Renamed returns the renamed states in the file's order.
func (p *Policy) Renamed() []Rename { return slices.Clone(p.renamed) }
