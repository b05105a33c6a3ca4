package policy

import "fmt"

// Completion is what follows a terminal edge. The zero value is Restart.
type Completion uint8

// What follows a terminal edge.
const (
	Restart Completion = iota // the same step begins a new run at the initial state
	Stop                      // the run rests, complete; nothing is offered any more
)

// String returns the policy file's word.
func (c Completion) String() string { return word(completions, c) }

// Templates is how resources/templates/list is answered. The zero value is
// TemplatesRefuse.
type Templates uint8

// How resources/templates/list is answered.
const (
	TemplatesRefuse Templates = iota // an error that says why
	TemplatesEmpty                   // a valid empty list, for clients that stumble over the error
)

// String returns the policy file's word.
func (t Templates) String() string { return word(templatesWords, t) }

// Reload is what a reload does to runs under way. The zero value is ReloadMove.
type Reload uint8

// What a reload does to runs under way.
const (
	ReloadMove Reload = iota // they move to the new policy
	ReloadPin                // they stay on the policy that they began with
)

// String returns the policy file's word.
func (r Reload) String() string { return word(reloads, r) }

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
func (s Stranded) String() string { return word(strandeds, s) }

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
func (p Pin) String() string { return word(pins, p) }

// UpstreamMay is the set of requests that the upstream may send to the client.
// The zero value allows none.
type UpstreamMay struct {
	Sampling, Elicitation, Roots bool
}

// The words of each closed set, indexed by value.
var (
	completions    = []string{"restart", "stop"}
	templatesWords = []string{"refuse", "empty"}
	reloads        = []string{"move", "pin"}
	strandeds      = []string{"keep", "restart", "refuse"}
	pins           = []string{"off", "warn", "refuse"}
	upstreamAsks   = []string{"sampling", "elicitation", "roots"}
)

func word[T ~uint8](words []string, v T) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("%T(%d)", v, uint8(v))
}

// settings is everything that a policy says beside its automaton.
type settings struct {
	name, description, instructions string
	onComplete                      Completion
	completionSaid                  bool // onComplete stands in the file
	templates                       Templates
	onReload                        Reload
	stranded                        Stranded
	pin                             Pin
	pinAt                           at // where the file says it
	validate                        bool
	upstreamMay                     UpstreamMay
	passthrough                     []string
	renamed                         []Rename
}

// Rename says that a state has a new name: a run that rests in Old of the policy
// before moves to New of this one.
type Rename struct{ Old, New string }
