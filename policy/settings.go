package policy

import (
	"fmt"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/policy/syntax"
)

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

// UpstreamMay returns what the upstream may ask of the client.
func (p *Policy) UpstreamMay() UpstreamMay {
	may := p.settings.UpstreamMay
	return UpstreamMay{Sampling: may[0], Elicitation: may[1], Roots: may[2]}
}

// Passthrough reports whether the policy lets an otherwise refused method, or
// vendor capability, through.
func (p *Policy) Passthrough(method string) bool {
	return slices.Contains(p.settings.Passthrough, method)
}

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
