package policy

import (
	"slices"
	"sync"
)

// Policy is one compiled policy file. It is immutable and safe for concurrent
// use.
type Policy struct {
	settings
	file    string
	digest  string
	initial State
	states  []stateEntry
	byName  map[string]State
	renames map[string]State // by a name that is gone, see Adopt

	everywhere [Kinds]layer
	exact      [Kinds][]string // see Exact

	machines sync.Pool         // of *fsm.FSM, see machine.go
	arrivals map[string]target // by the machines' names for states
}

// StateInfo is what a state says of itself.
type StateInfo struct {
	Name        string
	Description string
	Terminal    bool
}

// Name returns the policy's name, "" if it has none.
func (p *Policy) Name() string { return p.name }

// Description returns the policy's description, "" if it has none.
func (p *Policy) Description() string { return p.description }

// Instructions returns what is appended to the upstream's instructions.
func (p *Policy) Instructions() string { return p.instructions }

// Digest returns the SHA-256 of the source bytes in hexadecimal.
func (p *Policy) Digest() string { return p.digest }

// File returns the name that was given to Parse.
func (p *Policy) File() string { return p.file }

// Initial returns the configuration in which a run begins.
func (p *Policy) Initial() Configuration { return Configuration{State: p.initial} }

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

// OnComplete says what follows a terminal edge.
func (p *Policy) OnComplete() Completion { return p.onComplete }

// Validate reports whether arguments are checked against the listed inputSchema
// before a call is sent.
func (p *Policy) Validate() bool { return p.validate }

// Templates says how resources/templates/list is answered.
func (p *Policy) Templates() Templates { return p.templates }

// UpstreamMay returns what the upstream may ask of the client.
func (p *Policy) UpstreamMay() UpstreamMay { return p.upstreamMay }

// Passthrough reports whether the policy lets an otherwise refused method, or
// vendor capability, through.
func (p *Policy) Passthrough(method string) bool {
	return slices.Contains(p.passthrough, method)
}

// PassthroughMethods returns what Passthrough lets through, in the file's order.
func (p *Policy) PassthroughMethods() []string { return slices.Clone(p.passthrough) }

// OnReload says what a reload of this policy does to runs under way.
func (p *Policy) OnReload() Reload { return p.onReload }

// Stranded says what becomes of runs whose state this policy no longer has.
func (p *Policy) Stranded() Stranded { return p.stranded }

// Pin says what a tool definition does that differs from the lock file.
func (p *Policy) Pin() Pin { return p.pin }

// Renamed returns the renamed states in the file's order.
func (p *Policy) Renamed() []Rename { return slices.Clone(p.renamed) }
