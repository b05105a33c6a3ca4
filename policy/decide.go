package policy

import (
	"fmt"
	"slices"
)

// Code says why a request was refused. The set is closed and is what clients
// see; most codes are decided here, the rest by the proxy, and they live in one
// place. The zero value, CodeNone, means something only beside Allowed: true.
type Code uint8

// The refusal codes.
const (
	CodeNone            Code = iota
	InvalidTransition        // bound in some other state
	UnknownAction            // bound in no state
	NotAvailable             // bound, but not offered now; also the one code of opaque refusals
	UnknownCase              // the splitting argument is missing, no string, or no listed case
	Busy                     // the run's turn is taken and did not come free
	RunComplete              // the run has ended and does not begin again by itself
	ValidationFailed         // the arguments do not match the listed inputSchema
	OutcomeUnknown           // sent, no answer: it may have happened
	UpstreamUnavailable      // never sent, or refused by the upstream's transport
	DefinitionChanged        // the tool's definition differs from the pinned one
	TaskRunning              // a task started earlier still has the turn
	RunNotFound              // the handle names no run
	RunExpired               // the handle's run is over
)

// codeTexts are each code as clients see it, and in words for an operator.
var codeTexts = [...]struct{ word, text string }{
	CodeNone:            {"", ""},
	InvalidTransition:   {"invalid_transition", "another state binds it, this one does not"},
	UnknownAction:       {"unknown_action", "no state binds it"},
	NotAvailable:        {"not_available", "it is bound, and not offered now: a reload took the run's state, the run began anew, or calls of it cannot say their run"},
	UnknownCase:         {"unknown_case", "the argument named by \"by\" is missing, no string, or no listed case"},
	Busy:                {"busy", "another call had the run's turn, and kept it (--turn-timeout, --max-queue), or there are too many runs"},
	RunComplete:         {"run_complete", "the run is complete, and on_complete is stop"},
	ValidationFailed:    {"validation_failed", "its arguments do not fit the tool's inputSchema (validate)"},
	OutcomeUnknown:      {"outcome_unknown", "it was sent, and no answer came: it may have happened"},
	UpstreamUnavailable: {"upstream_unavailable", "it was not sent, or the upstream's transport turned it away"},
	DefinitionChanged:   {"definition_changed", "the tool is not what was locked (pin); look at it, then run fsm-proxy lock"},
	TaskRunning:         {"task_running", "a task has the run's turn until it ends"},
	RunNotFound:         {"run_not_found", "it names no run, or none that there is for its client"},
	RunExpired:          {"run_expired", "its run has ended"},
}

// String returns the code as clients see it, "" for CodeNone.
func (c Code) String() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c].word
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// Text returns the code in words, for an operator.
func (c Code) Text() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c].text
	}
	return c.String()
}

// Verdict is the answer to one request, with its reason. The zero value denies.
type Verdict struct {
	// Allowed is whether the request may go upstream.
	Allowed bool
	// Bound is whether a binding applies to the name, whatever it says of its case.
	Bound bool
	// ByGlob is whether a glob decided, allowed or not. A glob binds only what
	// the upstream lists: a caller that did not know must look, and ask again
	// with listed false if the name is not there.
	ByGlob bool
	// Turn is whether the call takes the run's turn: an edge of what was asked
	// for changes the configuration, or the binding is exclusive.
	Turn bool
	// Code says why not. It is CodeNone if, and only if, Allowed.
	Code Code
	// Rule is the binding that decided, the zero Rule where none did.
	Rule Rule
	// Symbol is what to give to Next once the outcome is known.
	Symbol Symbol
}

// Decide says whether name may be asked for in c, and why. It is pure. listed
// says whether the upstream lists the name. arg returns the decoded text of a
// top-level string argument, ok false if it is missing or no string; it is
// called at most once, only for a binding with `by`, and may be nil.
func (p *Policy) Decide(c Configuration, k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	v := Verdict{Symbol: Symbol{Kind: k, Name: name}}
	if !p.has(c.State) || int(k) >= Kinds {
		v.Code = NotAvailable
		return v
	}
	if c.Complete {
		v.Code = RunComplete
		return v
	}
	switch b := p.lookup(c.State, k, name, listed); {
	case b != nil && !b.None:
		return b.decide(v, c.State, arg)
	case b != nil: // the none that unbinds it
		v.Rule, v.ByGlob = b.Rule, b.Glob
	}
	v.Code = UnknownAction
	if p.BoundAnywhere(k, name, listed) {
		v.Code = InvalidTransition
	}
	return v
}

// decide answers for a name that b binds.
func (b *Binding) decide(v Verdict, s State, arg func(string) (string, bool)) Verdict {
	v.Rule, v.Bound, v.ByGlob = b.Rule, true, b.Glob
	var selected *Case
	if b.By == "" {
		selected = &b.Cases[0]
	} else if arg != nil {
		if text, ok := arg(b.By); ok {
			selected = b.byText[text]
		}
	}
	if selected == nil {
		v.Code = UnknownCase
		return v
	}
	v.Symbol.Case = selected.Text
	v.Allowed, v.Turn = true, selected.turn(s)
	return v
}

// By returns the name of the argument that splits a listed name in c, "" if none
// does.
func (p *Policy) By(c Configuration, k Kind, name string) string {
	if b := p.Binding(c, k, name, true); b != nil {
		return b.By
	}
	return ""
}

// Cases returns the values that the argument By may have for a listed name in c,
// in the file's order, nil if it is not split.
func (p *Policy) Cases(c Configuration, k Kind, name string) []string {
	b := p.Binding(c, k, name, true)
	if b == nil || b.By == "" {
		return nil
	}
	out := make([]string, len(b.Cases))
	for i := range b.Cases {
		out[i] = b.Cases[i].Text
	}
	return out
}

// Visible reports whether a listed item is bound in c, thus shown and callable.
func (p *Policy) Visible(c Configuration, k Kind, name string) bool {
	return p.Binding(c, k, name, true) != nil
}

// VisibleDiffers reports whether two configurations may show different items of
// kind k, from the bindings alone. False is certain; true may still come out the
// same for what a given upstream lists.
func (p *Policy) VisibleDiffers(a, b Configuration, k Kind) bool {
	return p.class(a, k) != p.class(b, k)
}

func (p *Policy) class(c Configuration, k Kind) int32 {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return 0
	}
	return p.states[c.State].class[k]
}

// Steady reports whether a name is bound in every state in which anything can be,
// and moves no run in any: what it reads hangs on nothing that the automaton knows.
func (p *Policy) Steady(k Kind, name string, listed bool) bool {
	if int(k) >= Kinds {
		return false
	}
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.bound(s, k, name, listed)
		if b == nil || slices.ContainsFunc(b.Cases, func(c Case) bool { return c.turn(s) }) {
			return false
		}
	}
	return true
}

// Everywhere says whether name may be asked for in whatever state a run is in, and
// moves it from none: what a request may do that belongs to no run. Its verdict
// takes no turn. Where it is not allowed the code is RunNotFound: it hangs on the
// run. The arguments are as for Decide, but that arg may be called for several names.
func (p *Policy) Everywhere(k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	symbol := Symbol{Kind: k, Name: name}
	all, refused := Verdict{}, Verdict{Code: RunNotFound, Symbol: symbol}
	if int(k) >= Kinds {
		return refused
	}
	arg = remembered(arg)
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.bound(s, k, name, listed)
		if b == nil {
			return refused
		}
		v := b.decide(Verdict{Symbol: symbol}, s, arg)
		if !v.Allowed || v.Turn {
			return refused
		}
		v.ByGlob = v.ByGlob || all.ByGlob
		all = v
	}
	return all
}

// BoundAnywhere reports whether p binds a name in some state, after precedence
// and none: all that a stranded run may still call. listed is as for Decide. It
// does not allocate.
func (p *Policy) BoundAnywhere(k Kind, name string, listed bool) bool {
	if int(k) >= Kinds {
		return false
	}
	for s := range p.states {
		if p.bound(State(s), k, name, listed) != nil {
			return true
		}
	}
	return false
}

// DecideAnywhere says whether p allows a request in some state: all that a
// stranded run may still call. Its verdict tells neither rule nor symbol, and is
// by a glob only if no exact name allows the same. The arguments are as for
// Decide, but that arg may be called for several names.
func (p *Policy) DecideAnywhere(k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	best := Verdict{Code: UnknownAction}
	if int(k) >= Kinds {
		return best
	}
	arg = remembered(arg)
	for s := range p.states {
		b := p.bound(State(s), k, name, listed)
		if b == nil {
			continue
		}
		switch v := b.decide(Verdict{}, State(s), arg); {
		case v.Allowed && !v.ByGlob:
			return Verdict{Allowed: true, Bound: true}
		case v.Allowed:
			best = Verdict{Allowed: true, Bound: true, ByGlob: true}
		case !best.Allowed:
			best = Verdict{Code: v.Code, Bound: true, ByGlob: v.ByGlob}
		}
	}
	return best
}

// remembered asks once for an argument that is asked for in a row.
func remembered(arg func(string) (string, bool)) func(string) (string, bool) {
	var last, text string
	var ok, asked bool
	return func(name string) (string, bool) {
		if arg != nil && (!asked || name != last) {
			text, ok = arg(name)
			last, asked = name, true
		}
		return text, ok
	}
}

// BoundIn returns the states in which a name is bound, after precedence and
// none, in the file's order. listed is as for Decide.
func (p *Policy) BoundIn(k Kind, name string, listed bool) []State {
	if int(k) >= Kinds {
		return nil
	}
	var out []State
	for s := range p.states {
		if p.bound(State(s), k, name, listed) != nil {
			out = append(out, State(s))
		}
	}
	return out
}

// ExactIn returns the exact names of kind k bound in c, in the file's order.
func (p *Policy) ExactIn(c Configuration, k Kind) []string {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return nil
	}
	var out []string
	for _, name := range p.Exact(k) {
		if p.bound(c.State, k, name, false) != nil {
			out = append(out, name)
		}
	}
	return out
}

// Exact returns the exact names of kind k that are bound in some state, in the
// file's order.
func (p *Policy) Exact(k Kind) []string {
	if int(k) >= Kinds {
		return nil
	}
	return slices.Clone(p.exact[k])
}
