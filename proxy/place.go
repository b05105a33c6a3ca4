package proxy

import (
	"slices"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// place is where a run stands and what decides there. It is comparable: two runs
// in one place are shown and allowed the same. The zero place allows nothing.
type place struct {
	policy *policy.Policy
	at     policy.Configuration
	// gate is the policy in force where that is another one than the run's
	// own: then a name must be bound somewhere in it, too, so that a
	// tightening holds at once for runs that it does not move.
	gate *policy.Policy
	// shut: the run's state is gone, and nothing is allowed any more.
	shut bool
	// pins are what tools are held to, nil where they need not be what was locked.
	pins *pins
	// runless: what is asked for belongs to no run, and so may be what is allowed in
	// every state, and moves none.
	runless bool
	// shadow: everything is shown, and what is decided is only noted.
	shadow bool
}

// decide says whether a name may be asked for, and why.
func (w place) decide(k policy.Kind, name string, listed bool, arg func(string) (string, bool)) policy.Verdict {
	if w.policy == nil || w.shut {
		return policy.Verdict{Code: policy.NotAvailable, Symbol: policy.Symbol{Kind: k, Name: name}}
	}
	if w.runless {
		return w.policy.Everywhere(k, name, listed, arg)
	}
	v := w.policy.Decide(w.at, k, name, listed, arg)
	if v.Allowed && w.gate != nil {
		g := w.gate.DecideAnywhere(k, name, listed, arg)
		v.Allowed, v.Bound, v.Code, v.ByGlob = g.Allowed, g.Bound, g.Code, v.ByGlob || g.ByGlob
	}
	return v
}

// visible reports whether a listed item is shown.
func (w place) visible(k policy.Kind, name string) bool {
	if w.shadow {
		return true
	}
	if w.policy == nil || w.shut || !w.policy.Visible(w.at, k, name) || w.runless && !w.policy.Steady(k, name, true) {
		return false
	}
	return w.gate == nil || w.gate.BoundAnywhere(k, name, true)
}

// exact returns the exact names of a kind that are bound here, whatever is listed.
// In shadow a binding adds nothing to what is; a tool that has to be what was locked
// is known only by the list.
func (w place) exact(k policy.Kind) []string {
	if w.policy == nil || w.shut || w.shadow || w.pins != nil && k == policy.Tool {
		return nil
	}
	names := w.policy.ExactIn(w.at, k)
	if w.runless {
		names = slices.DeleteFunc(names, func(name string) bool { return !w.policy.Steady(k, name, false) })
	}
	if w.gate == nil {
		return names
	}
	var kept []string
	for _, name := range names {
		if w.gate.BoundAnywhere(k, name, false) {
			kept = append(kept, name)
		}
	}
	return kept
}

// startsAgain reports whether the proxy serves the tool by which a client begins its run
// anew, where the run's key has one: it never runs out of runs otherwise.
func (w place) startsAgain() bool {
	return !w.shadow && (w.at.Complete || w.inForce().OnComplete() == policy.Stop)
}

// inForce is the policy whose settings hold, and whose names the static surface
// shows.
func (w place) inForce() *policy.Policy {
	if w.gate != nil {
		return w.gate
	}
	return w.policy
}

// upstreamMay is what the upstream may ask of clients.
func (w place) upstreamMay() policy.UpstreamMay {
	if w.shadow {
		return policy.UpstreamMay{Sampling: true, Elicitation: true, Roots: true}
	}
	return w.inForce().UpstreamMay()
}

// differs reports whether two places may show other items of a kind. False is
// certain.
func (w place) differs(to place, k policy.Kind) bool {
	if w.shadow || to.shadow {
		return w.shadow != to.shadow
	}
	if k == policy.Tool && w.pins != to.pins {
		return true
	}
	if w.policy != to.policy || w.gate != to.gate || w.shut != to.shut || w.policy == nil {
		w.pins, to.pins = nil, nil
		return w != to
	}
	return w.policy.VisibleDiffers(w.at, to.at, k)
}

// state is the name of the run's state, empty where there is no run.
func (w place) state() string {
	if w.runless {
		return ""
	}
	return w.policy.StateName(w.at.State)
}

// String names the state for people, with what it says of itself.
func (w place) String() string {
	if w.runless {
		return "every state"
	}
	info := w.policy.State(w.at.State)
	if info.Description == "" {
		return "state '" + info.Name + "'"
	}
	return "state '" + info.Name + "' (" + info.Description + ")"
}
