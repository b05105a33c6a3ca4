package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// spans are what limits count over.
var spans = map[limit.Span]string{limit.Run: "in a run", limit.Visit: "in a visit of the state", limit.Minute: "in any minute", limit.Hour: "in any hour", limit.Day: "in any day"}

// setAt is where the first change of a register stands that hangs on no result.
func (x *explainer) setAt(a *policy.Alternative) string {
	for _, o := range a.AllOutcomes() {
		for _, s := range a.Sets(o) {
			if !s.Late {
				return x.at(s.Place)
			}
		}
	}
	return ""
}

// outcomes says where each outcome leads, and what it sets: first those that the result decides, in their order.
// Neighbours that come to the same are one.
func (x *explainer) outcomes(b *policy.Binding, a *policy.Alternative) (out []Step) {
	all := a.AllOutcomes()
	all = slices.Concat(all[len(policy.AllOutcomes):], all[:len(policy.AllOutcomes)])
	if x.Kind == policy.Signal {
		all = []policy.Outcome{policy.Success}
	}
	for _, o := range all {
		step := Step{What: "on", Text: a.OutcomeName(o), Rule: x.leadsAt(b, a, o), Steps: x.sets(a, o)}
		if step.Is, step.To = x.leads(a, o); x.Kind == policy.Signal {
			step.What, step.Text = "leads", ""
		}
		var before []Step
		if i := o.Index() - len(policy.AllOutcomes); i >= 0 {
			before = []Step{{What: "when", Text: a.Outcomes[i].String(), Rule: x.at(a.Outcomes[i].Place)}}
		}
		for _, at := range a.LeavesBy(o) {
			before = append(before, Step{What: "exits", Text: "the part", Rule: x.at(at)})
		}
		step.Steps = append(before, step.Steps...)
		if n := len(out); n > 0 && out[n-1].Is == step.Is && out[n-1].Rule == step.Rule && len(out[n-1].Steps)+len(step.Steps) == 0 {
			out[n-1].Text += ", " + step.Text
			continue
		}
		out = append(out, step)
	}
	return out
}

// leadsAt is where the file says where an outcome leads; "" where it does not.
func (x *explainer) leadsAt(b *policy.Binding, a *policy.Alternative, o policy.Outcome) string {
	switch at := a.LeadsAt(o); {
	case at.Line > 0:
		return x.at(at)
	case a.Says(o) && a.Place.Line > 0:
		return x.at(a.Place)
	case a.Says(o):
		return b.Rule.String()
	}
	return ""
}

// leads says where an outcome leads, and names the state if there is but one.
func (x *explainer) leads(a *policy.Alternative, o policy.Outcome) (is, to string) {
	p, t := x.policy, a.Leads(o)
	if t.State != policy.Origin {
		to = p.StateName(t.In(x.State))
	}
	switch {
	case t.State == policy.Origin:
		var names []string
		for _, s := range p.ReturnsTo(t, x.State) {
			names = append(names, p.StateName(s))
		}
		return fmt.Sprintf("↩ returns to where %s was entered from: %s", cmp.Or(p.Returns(t, x.State), x.out.State), strictyaml.Listed(names)), ""
	case t.Terminal && p.OnComplete() == policy.Restart:
		return fmt.Sprintf("→ %s ■ completes the run, which begins anew in %s", to, p.StateName(p.Initial().State)), to
	case t.Terminal:
		return fmt.Sprintf("→ %s ■ completes the run", to), to
	case t.Changes(x.State):
		return "→ " + to, to
	case a.Says(o) || x.Kind == policy.Signal:
		return "↻ stays", to
	}
	return "↻ stays, as nothing is said", to
}

// signs are between a register and what becomes of it.
var signs = [...]string{register.Assign: "=", register.Empty: "= none", register.Add: "+=", register.Remove: "-="}

// sets says what an outcome does to registers, and the values that are known before the call.
func (x *explainer) sets(a *policy.Alternative, o policy.Outcome) (out []Step) {
	for _, s := range a.Sets(o) {
		step := Step{What: "set", Rule: x.at(s.Place)}
		var texts, values []string
		for _, program := range s.Values {
			texts = append(texts, program.String())
			if s.Late {
				continue
			}
			if value, err := program.Value(x.facts); err == nil {
				values = append(values, valueAt(value, ""))
			}
		}
		step.Text = strings.TrimSpace(s.Register.Name + " " + signs[s.Operation] + " " + strings.Join(texts, ", "))
		step.Is = strings.Join(values, ", ")
		out = append(out, step)
	}
	return out
}
