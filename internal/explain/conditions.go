package explain

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// selected says which case of a binding the argument selects, and what became of its alternatives.
func (x *explainer) selected(b *policy.Binding) (out []Step) {
	selected := &b.Cases[0]
	if b.By != "" {
		value := x.call.Argument(b.Path)
		selected = b.Select(value)
		by := Step{What: "by", Text: b.By, Is: "missing, or no text, number or boolean", Rule: x.at(b.ByPlace)}
		switch value.Kind() {
		case policy.TextValue:
			by.Is = strictyaml.Quote(value.String())
		case policy.NumberValue, policy.BooleanValue:
			by.Is = value.String()
		}
		if out = []Step{by}; selected == nil {
			return append(out, Step{What: "case", Is: "none is that: " + caseNames(b)})
		}
		chosen := Step{What: "case", Text: selected.Name, Rule: x.at(selected.Place)}
		if selected.None {
			chosen.Is = "none, which refuses it"
		}
		if out = append(out, chosen); selected.None {
			return out
		}
	}
	return append(out, x.alternatives(b, selected)...)
}

func caseNames(b *policy.Binding) string {
	names := make([]string, len(b.Cases))
	for i := range b.Cases {
		names[i] = b.Cases[i].Name
	}
	return strictyaml.And(names)
}

// looks are what became of alternatives, and of guards.
var looks = map[policy.Look][2]string{
	policy.LookedPast: {"not looked at: one before it has decided", "not looked at"},
	policy.ForOthers:  {"not for who asks", ""},
	policy.Holds:      {"this one", "true"},
	policy.HoldsNot:   {"does not hold", "false"},
	policy.LookFault:  {"cannot be evaluated, and so permits nothing behind it either", "error"},
}

// alternatives says what became of each alternative of a case.
func (x *explainer) alternatives(b *policy.Binding, c *policy.Case) (out []Step) {
	ways := c.Ways(&policy.Request{From: x.From, Who: x.Who, Facts: x.facts})
	for i, w := range ways {
		steps := x.forWhom(w.For)
		looked := w.Alternative.Guards
		if w.Looks == policy.LookedPast || w.Looks == policy.ForOthers {
			looked = nil
		}
		for j, g := range looked {
			steps = append(steps, x.guard(g, w.Guards[j], w.Fault)...)
		}
		if w.Looks == policy.Holds {
			steps = append(steps, x.goes(b, w.Alternative)...)
		}
		if len(ways) == 1 {
			out = steps
			break
		}
		out = append(out, Step{What: "alternative", Text: strconv.Itoa(i + 1), Is: looks[w.Looks][0], Rule: x.at(w.Place), Steps: steps})
	}
	for _, text := range x.out.Because {
		out = append(out, Step{What: "because", Is: text})
	}
	return out
}

// guard says what became of a guard: of each clause, where it was looked at.
func (x *explainer) guard(g policy.Guard, look policy.Look, fault error) (out []Step) {
	clauses := x.guards.Clauses(g.Program)
	if look == policy.LookedPast {
		clauses = []*guard.Program{g.Program}
	}
	for i, clause := range clauses {
		step := Step{What: "when", Text: clause.String(), Is: looks[look][1]}
		if i == 0 {
			step.Rule = x.at(g.Place)
		} else {
			step.What = "and"
		}
		if len(clauses) > 1 {
			var holds bool
			holds, fault = clause.Holds(x.facts)
			step.Is = strconv.FormatBool(holds)
		}
		switch {
		case look == policy.LookedPast:
		case fault != nil:
			step.Is, step.Steps = "error", append([]Step{{What: "error", Is: fault.Error()}}, x.values(clause)...)
		case step.Is == "false":
			step.Steps = x.values(clause)
		}
		out = append(out, step)
	}
	return out
}

// values are those of what a condition reads.
func (x *explainer) values(p *guard.Program) (out []Step) {
	reads := p.Reads()
	for _, path := range reads.Args {
		if path != "args" {
			out = append(out, Step{What: path, Is: valueAt(x.args, strings.TrimPrefix(path, "args"))})
		}
	}
	for _, name := range reads.Registers {
		value := string(x.run.Registers().AppendRegister(nil, name))
		if value == "null" {
			value = "unset"
		}
		out = append(out, Step{What: "registers." + name, Is: cut(value)})
	}
	return out
}

// steps are those of a path: .name, [0] or ["name"].
var steps = regexp.MustCompile(`^(?:\.([A-Za-z0-9_]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\])`)

// valueAt writes the value at a path.
func valueAt(value any, path string) string {
	for path != "" {
		m := steps.FindStringSubmatch(path)
		if m == nil {
			return "?"
		}
		path = path[len(m[0]):]
		var ok bool
		switch name, _ := strconv.Unquote(m[3]); {
		case m[2] != "":
			list, _ := value.([]any)
			i, err := strconv.Atoi(m[2])
			if ok = err == nil && i < len(list); ok {
				value = list[i]
			}
		default:
			value, ok = member(value, m[1]+name)
		}
		if !ok {
			return "missing"
		}
	}
	text, _ := json.Marshal(value)
	return cut(string(text))
}

func member(of any, name string) (value any, ok bool) {
	members, _ := of.(map[string]any)
	value, ok = members[name]
	return value, ok
}

// decoded is an object as it is shown, with its numbers as they are written.
func decoded(object []byte) (value any) {
	d := json.NewDecoder(strings.NewReader(string(object)))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil
	}
	return value
}

// cut cuts a value to a readable length.
func cut(text string) string {
	const most = 80
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// forWhom says of each condition on who asks whether it holds.
func (x *explainer) forWhom(all []policy.Audience) (out []Step) {
	for _, a := range all {
		for i, clause := range x.guards.Clauses(a.Program) {
			step := Step{What: "for", Text: policy.AudienceText(clause.String()), Is: "yes"}
			if i == 0 {
				step.Rule = x.at(a.Place)
			} else {
				step.What = "and"
			}
			switch holds, _ := clause.Holds(x.facts); {
			case x.From == policy.Operator:
				step.Is = "an operator is as good as all"
			case !holds && x.Who == nil:
				step.Is = "no: nobody is known (--who)"
			case !holds:
				step.Is = "no"
			}
			out = append(out, step)
		}
	}
	return out
}

// goes says what holds for a call that goes by an alternative, and where it leads.
func (x *explainer) goes(b *policy.Binding, a *policy.Alternative) (out []Step) {
	v := &x.call.Verdict
	switch {
	case v.Code == policy.ApprovalDenied:
		return []Step{{What: "approve", Is: v.Fault().Error(), Rule: x.at(a.Approve.Place)}}
	case x.out.Verdict == Refused && v.Fault() != nil: // at no guard
		return []Step{{What: "set", Is: "does not fit: " + v.Fault().Error(), Rule: x.setAt(a)}}
	case x.out.Verdict == Refused || x.out.Verdict == Invalid:
		return nil
	}
	if a.Approve != nil {
		who := "an operator"
		if a.Approve.By == policy.ByClient {
			who = "whoever sits in front of the client"
		}
		text := who + " has to say yes within " + strictyaml.DurationText(a.Approve.Seconds)
		out = append(out, Step{What: "approve", Text: text, Is: a.Approve.Message, Rule: x.at(a.Approve.Place)})
	}
	limits := x.policy.LimitsOf(x.State, v)
	for _, l := range limits.Own {
		out = append(out, Step{What: "at_most", Text: fmt.Sprintf("%d %s", l.Most, spans[l.Span]), Rule: x.at(x.policy.LimitPlace(l.Key))})
	}
	for _, l := range limits.Principal {
		out = append(out, Step{What: "at_most", Text: fmt.Sprintf("%d %s by one principal", l.Most, spans[l.Span]), Rule: x.at(x.policy.LimitPlace(l.Key))})
	}
	if a.Exclusive {
		out = append(out, Step{What: "exclusive", Text: "no other call with the turn beside it"})
	}
	if a.Irreversible {
		out = append(out, Step{What: "irreversible", Text: "no fork of the run goes back behind the call"})
	}
	if a.Timeout > 0 {
		out = append(out, Step{What: "timeout", Text: strictyaml.DurationText(a.Timeout) + " for the answer"})
	}
	if x.Kind == policy.Tool && x.policy.Validate() {
		out = append(out, Step{What: "validate", Text: "the arguments have to fit the tool's inputSchema"})
	}
	if x.Kind == policy.Tool && x.policy.Pin() == policy.PinRefuse {
		out = append(out, Step{What: "pin", Text: "the tool has to be what was locked", Rule: x.at(x.policy.PinPlace())})
	}
	return append(out, x.outcomes(b, a)...)
}
