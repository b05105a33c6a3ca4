package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// Term is one thing that holds for calls beside where their outcomes lead.
type Term struct {
	What string `json:"what"` // the policy file's key: for, when, because, at_most, approve, outcomes, set, description, registers, upstream_may
	Of   string `json:"of,omitempty"`
	Text string `json:"text"`
}

// TermChange is a term that differs: Was is "" where it is new, Now where it is gone.
type TermChange struct {
	By          string `json:"by,omitempty"`
	Case        string `json:"case,omitempty"`       // with By
	Alternative int    `json:"alternative,omitzero"` // from 1, where there are several
	What        string `json:"what"`                 // the policy file's key
	Of          string `json:"of,omitempty"`         // the outcome, or register, of which it is said
	Was         string `json:"was,omitempty"`
	Now         string `json:"now,omitempty"`
}

// String returns the change on one line that cannot disturb a terminal.
func (c TermChange) String() string {
	text := strictyaml.Printable(strings.TrimSpace(c.What + " " + c.Of))
	switch {
	case c.Was == "":
		return text + ": " + strictyaml.Printable(c.Now)
	case c.Now == "":
		return text + ": none, was " + strictyaml.Printable(c.Was)
	}
	return text + ": " + strictyaml.Printable(c.Now) + ", was " + strictyaml.Printable(c.Was)
}

// terms returns what holds for calls of an alternative: each key, or outcome, once. key says
// what the place of a limit is called; nil: as it is.
func terms(a *policy.Alternative, key func(string) string) (out []Term) {
	if a == nil {
		return nil
	}
	add := func(what, of string, texts []string, between string) {
		if len(texts) > 0 {
			out = append(out, Term{what, of, strings.Join(texts, between)})
		}
	}
	add("for", "", audienceTexts(a.For), " && ")
	var guards []string
	for _, g := range a.Guards {
		guards = append(guards, g.String())
	}
	if len(guards) > 1 {
		for i := range guards {
			guards[i] = "(" + guards[i] + ")"
		}
	}
	add("when", "", guards, " && ")
	add("because", "", a.Because, " / ")
	add("at_most", "", limitTexts(a.Limits, key), ", ")
	if a.Approve != nil {
		add("approve", "", []string{approveText(a.Approve)}, "")
	}
	var names []string
	for _, x := range a.Outcomes {
		out, names = append(out, Term{"outcomes", x.Name, x.String()}), append(names, x.Name)
	}
	if len(names) > 1 {
		add("outcomes", "", names, ", ")
	}
	for _, o := range a.AllOutcomes() {
		add("set", a.OutcomeName(o), setTexts(a.Sets(o)), ", ")
	}
	return out
}

// audienceTexts writes whom something is for.
func audienceTexts(all []policy.Audience) (out []string) {
	for _, a := range all {
		out = append(out, policy.AudienceText(a.String()))
	}
	return out
}

// approveText writes who has to say yes.
func approveText(a *policy.Approve) string {
	text := "by " + a.By.String() + " within " + strictyaml.DurationText(a.Seconds)
	if a.Message != "" {
		text += ": " + a.Message
	}
	return text
}

// limitTexts writes limits, each with its place where that has a name.
func limitTexts(l policy.Limits, key func(string) string) (out []string) {
	for i, some := range [][]limit.Limit{l.Own, l.Principal} {
		for _, x := range some {
			text := fmt.Sprintf("%d in any %s", x.Most, x.Span)
			switch x.Span {
			case limit.Run:
				text = fmt.Sprintf("%d a run", x.Most)
			case limit.Visit:
				text = fmt.Sprintf("%d a visit", x.Most)
			}
			if i > 0 {
				text += " by one principal"
			}
			if key != nil {
				text += key(x.Key)
			}
			out = append(out, text)
		}
	}
	return out
}

// setTexts writes what becomes of registers, by their names: the order in a file means nothing.
func setTexts(set []policy.Assignment) (out []string) {
	for _, x := range set {
		var values []string
		for _, v := range x.Values {
			values = append(values, v.String())
		}
		sign := " = "
		switch x.Operation {
		case register.Add:
			sign = " += "
		case register.Remove:
			sign = " -= "
		case register.Empty:
			values = []string{"none"}
		}
		out = append(out, x.Register.Name+sign+strings.Join(values, ", "))
	}
	slices.Sort(out)
	return out
}

// termChanges pairs terms of one key, and outcome, and returns those that differ.
func termChanges(c TermChange, was, now []Term) (out []TermChange) {
	find := func(all []Term, x Term) string {
		i := slices.IndexFunc(all, func(y Term) bool { return y.What == x.What && y.Of == x.Of })
		if i < 0 {
			return ""
		}
		return all[i].Text
	}
	for _, x := range was {
		if text := find(now, x); text != x.Text {
			c.What, c.Of, c.Was, c.Now = x.What, x.Of, x.Text, text
			out = append(out, c)
		}
	}
	for _, x := range now {
		if find(was, x) == "" {
			c.What, c.Of, c.Was, c.Now = x.What, x.Of, "", x.Text
			out = append(out, c)
		}
	}
	return out
}

// terms compares what holds for the alternatives of a case beside where they lead: of one that
// is gone, where it led says all.
func (d differ) terms(was, now side, by string, of *policy.Case) (out []TermChange) {
	a, b := was.under(by, of), now.under(by, of)
	for i := range b {
		c := TermChange{By: by, Alternative: i + 1}
		if by != "" {
			c.Case = of.Name
		}
		if max(len(a), len(b)) == 1 {
			c.Alternative = 0
		}
		var x *policy.Alternative
		if i < len(a) {
			x = &a[i]
		}
		out = append(out, termChanges(c, terms(x, d.placed(now.state)), terms(&b[i], placeOf(d.new, now.state)))...)
	}
	return out
}

// placed names the place of a limit of the old policy as the new one has it, where that is
// counted in other places than the calls of one alternative in the state s.
func (d differ) placed(s policy.State) func(string) string {
	return func(key string) string {
		if heir, ok := d.new.LimitKey(key); ok {
			key = heir
		}
		return placeOf(d.new, s)(key)
	}
}

// placeOf names the place at which a limit counts, beyond the alternative in a state of p.
func placeOf(p *policy.Policy, s policy.State) func(string) string {
	return func(key string) string {
		parts := strings.Split(key, "\x00")
		switch {
		case len(parts) == 1:
			return ""
		case parts[0] == "":
			return " everywhere" + wholeText(parts)
		case parts[0] != p.StateName(s):
			return " with " + parts[0] + wholeText(parts)
		}
		return wholeText(parts)
	}
}

// wholeText says whether a limit counts all cases of its binding together: as little as a
// pattern has it, another pattern of the same name counts for itself.
func wholeText(key []string) string {
	text := ""
	if len(key) > 2 && policy.IsGlob(key[2]) {
		text = " of " + key[2]
	}
	if len(key) == 3 {
		text += " for all cases"
	}
	return text
}

// SettingChanges are the terms of a whole policy that a reload changes: its registers, what a run may do at most, and
// what its settings hold calls to.
func SettingChanges(old, new *policy.Policy) []TermChange {
	return termChanges(TermChange{}, append(settingTerms(old), checkTerms(old)...), append(settingTerms(new), checkTerms(new)...))
}

// checkTerms are the settings that let through more or less, whatever they are: a reload that lifts one is to be seen.
func checkTerms(p *policy.Policy) []Term {
	return []Term{
		{"validate", "", strconv.FormatBool(p.Validate())},
		{"pin", "", p.Pin().String()},
		{"templates", "", p.Templates().String()},
		{"passthrough", "", "[" + strings.Join(p.Passthroughs(), ", ") + "]"},
	}
}

func settingTerms(p *policy.Policy) (out []Term) {
	for _, r := range p.Registers() {
		out = append(out, Term{"registers", r.Name, registerText(r)})
	}
	if texts := limitTexts(p.LimitsIn(policy.Everywhere), nil); len(texts) > 0 {
		out = append(out, Term{"at_most", "", strings.Join(texts, ", ")})
	}
	return out
}

// registerText writes a register's type.
func registerText(r policy.Register) string {
	if r.Kind == guard.TextSet {
		return fmt.Sprintf("%s, at most %d", r.Kind, cmp.Or(r.Max, register.MaxTexts))
	}
	return r.Kind.String()
}

// stateTerms are the terms of a state. name says what a state is called; a clock leads to one.
func stateTerms(p *policy.Policy, s policy.State, name func(string) string) (out []Term) {
	if texts := audienceTexts(p.Audience(s)); len(texts) > 0 {
		out = append(out, Term{"for", "", strings.Join(texts, " && ")})
	}
	if texts := limitTexts(p.LimitsIn(s), nil); len(texts) > 0 {
		out = append(out, Term{"at_most", "", strings.Join(texts, ", ")})
	}
	if after := p.After(s); after != nil {
		out = append(out, Term{"after", "", clockText(p, s, after, name)})
	}
	return out
}

// askingTerm is the term of what the upstream may ask in a state.
func askingTerm(p *policy.Policy, s policy.State) Term {
	may := p.UpstreamMayIn(s, p)
	names := may.Words()
	return Term{"upstream_may", "", "[" + strings.Join(names, ", ") + "]"}
}

// clockText writes a clock of a state.
func clockText(p *policy.Policy, s policy.State, after *policy.After, name func(string) string) string {
	t := after.Leads()
	lead := Lead{Terminal: t.Terminal, Stays: t.In(s) == s}
	if t.State == policy.Origin {
		lead = Lead{Returns: name(cmp.Or(p.Returns(t, s), "the state"))}
	} else {
		lead.To = name(p.StateName(t.In(s)))
	}
	text := strictyaml.DurationText(after.Seconds) + " " + lead.String()
	if set := setTexts(after.Sets()); len(set) > 0 {
		text += ", " + strings.Join(set, ", ")
	}
	return text
}

// same is a name that is the same in both policies.
func same(name string) string { return name }

// heirOf is what the new policy calls a state of the old one.
func (d differ) heirOf(name string) string {
	if heir, ok := d.new.Heir(name); ok {
		return d.new.StateName(heir)
	}
	return name
}
