// Package explain says what a policy does with one call, and by which of its lines: a run stands where it is asked for,
// decides as it does for the proxy, and what it has looked at on the way is written down.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Question is a call, and where the run is that it comes to.
type Question struct {
	State     policy.State
	Kind      policy.Kind
	Name      string
	From      policy.Sender // of a signal
	Args      []byte        // nil: none
	Who       *asker.Who    // nil: nobody is known
	Registers []byte        // a JSON object; what is not in it is as it begins
	Now       time.Time
}

// Explanation is a verdict with everything that led to it.
type Explanation struct {
	State   string   `json:"state"`
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Code    string   `json:"code,omitzero"`     // of a refusal
	Why     string   `json:"why,omitzero"`      // the code in words
	Because []string `json:"because,omitempty"` // what a client is told beside the code
	Turn    bool     `json:"turn,omitzero"`     // the call takes the run's turn
	Listed  bool     `json:"listed"`            // lists have the name, if the server's do
	Steps   []Step   `json:"steps"`
}

// Verdict is what becomes of a call.
type Verdict string

// The verdicts.
const (
	Refused Verdict = "refused"
	Sent    Verdict = "sent"
	Held    Verdict = "held"    // somebody is asked first
	Taken   Verdict = "taken"   // a signal
	Invalid Verdict = "invalid" // an argument reads differently to others: no call can be this
)

// Step is one thing that was looked at, or that follows.
type Step struct {
	What  string `json:"what"` // the policy file's key, or word
	Text  string `json:"text,omitzero"`
	Is    string `json:"is,omitzero"`   // what came of it
	To    string `json:"to,omitzero"`   // the state that an outcome leads to
	Rule  string `json:"rule,omitzero"` // file:line:column
	Steps []Step `json:"steps,omitempty"`
}

// explainer explains one call.
type explainer struct {
	*Question
	policy *policy.Policy
	guards *guard.Env
	args   any // as they were read; nil: none
	run    run.Run
	call   run.Call
	facts  *guard.Call
	out    *Explanation
}

// maxRegisters is how many bytes registers may hold.
const maxRegisters = 256 << 10

// Explain says what a policy does with a call, and why. The error says why there is no such call.
func Explain(p *policy.Policy, q *Question) (*Explanation, error) {
	x := &explainer{Question: q, policy: p, out: &Explanation{State: p.StateName(q.State), Kind: q.Kind.String(), Name: q.Name}}
	given, err := play.Arguments(q.Args)
	if err != nil {
		return nil, fmt.Errorf("no call can have these arguments: %w", err)
	}
	if err := x.begin(); err != nil {
		return nil, err
	}
	x.call = run.Call{Request: run.Request{Kind: q.Kind, Name: q.Name, From: q.From, Arguments: given, Who: q.Who, Listed: true, Known: true, Locked: run.AsLocked}}
	x.decide()
	x.where()
	return x.out, nil
}

// begin has the run stand in the state, with the registers.
func (x *explainer) begin() error {
	p := x.policy
	at := policy.Configuration{State: x.State}
	switch info := p.State(x.State); {
	case info.Terminal && p.OnComplete() == policy.Restart:
		return fmt.Errorf("no run rests in %s, which is terminal: it begins anew in %s; ask for that state", info.Name, p.StateName(p.Initial().State))
	case info.Terminal:
		at.Complete = true
	}
	kinds := map[string]guard.Kind{}
	for _, r := range p.Registers() {
		kinds[r.Name] = r.Kind
	}
	x.guards, x.args = guard.New(kinds), decoded(x.Args)
	if len(x.Registers) == 0 {
		x.Registers = []byte("{}")
	}
	registers, err := register.Read(p.Schema(), maxRegisters, x.Registers)
	if err != nil {
		return err
	}
	entry := run.Entry{Type: run.Ended, Time: x.Now, Step: policy.Step{Changed: true}, To: run.Standing{Policy: p, At: at}, Set: changes(p, registers.View())}
	x.run = run.Replay(run.Config{Policy: p}, slices.Values([]run.Entry{entry}), x.Now)
	x.facts = &guard.Call{Name: x.Name, Args: x.Args, Registers: x.run.Registers(), Now: x.Now,
		Run: guard.Run{State: p.StateName(x.State), Began: x.Now, Entered: x.Now}}
	if x.Who != nil {
		x.facts.Who = *x.Who
	}
	return nil
}

// changes are what has set registers to their values.
func changes(p *policy.Policy, values *register.View) (out []register.Change) {
	for _, r := range p.Registers() {
		change := register.Change{Register: r.Name}
		switch value := values.Register(r.Name).(type) {
		case nil:
			continue
		case guard.Set:
			change.Operation = register.Add
			for _, text := range value.Values() {
				change.Values = append(change.Values, text)
			}
		default:
			change.Values = []any{value}
		}
		out = append(out, change)
	}
	return out
}

// decide has the run decide the call, and enters the verdict.
func (x *explainer) decide() {
	c, out := &x.call, x.out
	admitted, _ := x.run.Enter(c, 0, x.Now)
	v := &c.Verdict
	out.Because, out.Turn = v.Because(), v.Turn
	switch {
	case c.Unclear:
		out.Verdict, out.Because, out.Turn = Invalid, nil, false
		out.Why = "an argument that is looked at reads differently to others: JSON-RPC error -32600"
	case admitted == run.ApprovalWanted:
		out.Verdict = Held
	case admitted != run.Admitted:
		out.Verdict, out.Code, out.Why = Refused, v.Code.String(), v.Code.Text()
	case x.Kind == policy.Signal:
		out.Verdict = Taken
	default:
		out.Verdict = Sent
	}
	s := x.run.Snapshot(x.Now).As(x.Who)
	if x.Kind == policy.Signal {
		out.Listed = slices.Contains(s.Signals(), x.Name)
	} else {
		out.Listed = s.Visible(x.Kind, x.Name)
	}
}

// where says which line binds the name, and goes on from there.
func (x *explainer) where() {
	at := x.run.Snapshot(x.Now).At
	b := x.policy.Binding(at, x.Kind, x.Name, true)
	v := &x.call.Verdict
	switch {
	case v.Code == policy.RunComplete:
		x.out.Steps = []Step{{What: "state", Text: x.out.State, Is: "the run is complete there, and on_complete is stop", Rule: x.at(x.policy.State(x.State).Place)}}
		return
	case b == nil && v.Rule.Line > 0:
		x.out.Steps = []Step{{What: x.out.Kind, Text: v.Rule.Pattern, Is: "none, which unbinds it here", Rule: v.Rule.String()}}
	case b == nil:
		x.out.Steps = []Step{{What: x.out.Kind, Text: x.Name, Is: "nothing binds it here" + x.meant()}}
	default:
		x.out.Steps = append(x.audience(), x.binding(b))
	}
	x.out.Steps = append(x.out.Steps, x.passedOver(at, cmp.Or(b, &policy.Binding{Rule: v.Rule}))...)
	if v.Code == policy.InvalidTransition || v.Code == policy.UnknownAction {
		x.out.Steps = append(x.out.Steps, x.elsewhere()...)
	}
}

// audience says to whom the state binds anything, where it does not to all.
func (x *explainer) audience() []Step {
	if steps := x.forWhom(x.policy.Audience(x.State)); len(steps) > 0 {
		return []Step{{What: "state", Text: x.out.State, Rule: x.at(x.policy.State(x.State).Place), Steps: steps}}
	}
	return nil
}

// binding says what became of the call by the binding of its name.
func (x *explainer) binding(b *policy.Binding) Step {
	v := &x.call.Verdict
	var is []string
	if b.Glob {
		is = append(is, "a glob, which binds what the server lists")
	}
	is = append(is, x.home(b)...)
	out := Step{What: x.out.Kind, Text: b.Pattern, Rule: b.Rule.String()}
	switch {
	case v.Bound:
		out.Steps = x.selected(b)
	case b.From == policy.Operator && x.From == policy.Agent:
		is = append(is, "for an operator alone: to the agent it does not exist")
	default:
		is = append(is, "not for who asks")
		for i := range b.Cases {
			for j := range b.Cases[i].Alternatives {
				out.Steps = append(out.Steps, x.forWhom(b.Cases[i].Alternatives[j].For)...)
			}
		}
		out.Steps = slices.CompactFunc(out.Steps, func(a, b Step) bool { return a.Rule == b.Rule && a.Text == b.Text })
	}
	out.Is = strings.Join(is, "; ")
	return out
}

// home says where a binding is from, if that is not the state itself.
func (x *explainer) home(b *policy.Binding) []string {
	part, ofFile := strings.CutSuffix(b.Shared, "/")
	switch {
	case b.Home == policy.Everywhere:
		return []string{"everywhere"}
	case ofFile:
		return []string{"everywhere in the part " + part}
	case part != "":
		return []string{"in each state of the part " + part}
	}
	return nil
}

// passedOver are the bindings that match the name, too, and do not decide.
func (x *explainer) passedOver(at policy.Configuration, by *policy.Binding) (out []Step) {
	if at.Complete {
		return nil
	}
	for _, home := range []policy.State{x.State, policy.Everywhere} {
		for _, b := range x.policy.BindingsIn(home, x.Kind) {
			if b.Rule == by.Rule || home == policy.Everywhere && !x.policy.State(x.State).Inherits || b.Pattern != x.Name && !(b.Glob && b.Matches(x.Name)) {
				continue
			}
			why := "a more specific glob goes before it"
			switch {
			case b.Pattern == by.Pattern:
				why = "the state's own goes before everywhere's"
			case !policy.IsGlob(by.Pattern):
				why = "the name itself goes before globs"
			}
			is := x.home(b)
			if b.None {
				is = append(is, "none")
			}
			out = append(out, Step{What: "passed over", Text: x.out.Kind + " " + b.Pattern, Is: strings.Join(append(is, why), "; "), Rule: b.Rule.String()})
		}
	}
	return out
}

// meant asks whether another name was meant, where no state binds this one.
func (x *explainer) meant() string {
	if x.call.Verdict.Code != policy.UnknownAction {
		return ""
	}
	return strictyaml.NewReader("", strictyaml.Language{}).DidYouMean(x.Name, x.policy.Exact(x.Kind))
}

// elsewhere says which other states bind the name.
func (x *explainer) elsewhere() (out []Step) {
	for i := range x.policy.States() {
		s := policy.State(i)
		b := x.policy.Binding(policy.Configuration{State: s}, x.Kind, x.Name, true)
		if b == nil || s == x.State {
			continue
		}
		name, rule := x.policy.StateName(s), b.Rule.String()
		if n := len(out); n > 0 && out[n-1].Rule == rule {
			out[n-1].Text += ", " + name
			continue
		}
		step := Step{What: "bound in", Text: name, Rule: rule}
		switch v := x.policy.Decide(policy.Configuration{State: s}, &policy.Request{Kind: x.Kind, Name: x.Name, From: x.From, Listed: true, Who: x.Who}); {
		case b.From == policy.Operator && x.From == policy.Agent:
			step.Is = "for an operator alone"
		case !v.Bound:
			step.Is = "not for who asks"
		}
		out = append(out, step)
	}
	if len(out) > 0 {
		return out
	}
	for _, k := range policy.SymbolKinds {
		for _, s := range x.policy.BoundIn(k, x.Name, false) {
			if k != x.Kind {
				b := x.policy.Binding(policy.Configuration{State: s}, k, x.Name, false)
				out = append(out, Step{What: "bound in", Text: x.policy.StateName(s), Is: "as a " + k.String(), Rule: b.Rule.String()})
			}
		}
	}
	return out
}

// at writes a place as rules are, "" for none.
func (x *explainer) at(p policy.Place) string {
	return policy.Rule{File: cmp.Or(p.File, x.policy.File()), Line: p.Line, Column: p.Column}.String()
}
