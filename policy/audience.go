package policy

import (
	"slices"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// Anyone stands for all that may ask: what is for somebody is for them.
var Anyone = &guard.Who{Subject: "anyone"}

// fits reports whether who asks, nil for nobody who is known, is among those that all of some
// programs hold for.
func fits(who *guard.Who, all ...*guard.Program) bool {
	if len(all) == 0 || who == Anyone {
		return true
	}
	var call guard.Call
	if who != nil {
		call.Who = *who
	}
	return !slices.ContainsFunc(all, func(p *guard.Program) bool { ok, _ := p.Holds(&call); return !ok })
}

// fits is isFor where whom something is for matters.
func (p *Policy) fits(s State, b *Binding, who *guard.Who) bool {
	if who == Anyone {
		return true
	}
	if !fits(who, p.states[s].audience...) {
		return false
	}
	for a := range b.Alternatives() {
		if fits(who, a.For...) {
			return true
		}
	}
	return false
}
