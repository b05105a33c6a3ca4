package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

const audienceSource = `
version: 1
initial: open
everywhere:
  tools: {look: }
states:
  open:
    tools:
      read: {for: {scope: [read, admin]}}
      "read_*": stay
      merge: {for: {claim: {"https://example.com/roles": maintainer}}, on_any: open}
      "*": stay
      pay:
        - {for: {subject: ann, issuer: [i, j]}, on_any: closed}
        - {for: {claim: {level: 2}}, when: args.amount <= 10, because: Ten at most., on_any: open}
      git:
        by: what
        cases: {push: {for: {scope: push}}, pull: stay}
    signals: {over: {to: closed, for: {scope: admin}}}
  closed:
    for: {scope: admin}
    tools: {reopen: open}
`

func asks(scopes []string, claims string) *guard.Who {
	return &guard.Who{Subject: "bob", Issuer: "i", Scopes: scopes, Claims: []byte(claims)}
}

func TestAudience(t *testing.T) {
	p := parse(t, "audience.yaml", []byte(audienceSource))
	closed := Configuration{State: stateOf(t, p, "closed")}
	ann := &guard.Who{Subject: "ann", Issuer: "j"}
	for _, x := range []struct {
		at         Configuration
		kind       Kind
		name, args string
		who        *guard.Who
		code       Code
	}{
		{p.Initial(), Tool, "read", "", nil, UnknownAction},
		{p.Initial(), Tool, "read", "", asks([]string{"reads"}, "{}"), UnknownAction}, // and no glob takes its place
		{p.Initial(), Tool, "read", "", asks([]string{"x", "admin"}, "{}"), CodeNone},
		{p.Initial(), Tool, "merge", "", asks(nil, `{"https://example.com/roles":["dev","maintainer"]}`), CodeNone},
		{p.Initial(), Tool, "merge", "", asks(nil, `{"https://example.com/roles":"maintainer"}`), CodeNone},
		{p.Initial(), Tool, "merge", "", asks(nil, `{"https://example.com/roles":"maintainers"}`), UnknownAction},
		{p.Initial(), Tool, "merge", "", asks(nil, `{"https://example.com/roles":{"maintainer":1}}`), UnknownAction},
		{p.Initial(), Tool, "merge", "", asks(nil, `{"https://example.com/roles":"maintainer","https://example.com/Roles":"dev"}`), UnknownAction},
		{p.Initial(), Tool, "pay", `{"amount":11}`, ann, CodeNone},
		{p.Initial(), Tool, "pay", `{"amount":11}`, asks(nil, `{"level":2}`), GuardFailed},
		{p.Initial(), Tool, "pay", `{"amount":1}`, asks(nil, `{"level":2.0}`), CodeNone},
		{p.Initial(), Tool, "pay", `{"amount":1}`, asks(nil, `{"level":"2"}`), UnknownAction},
		{p.Initial(), Tool, "git", `{"what":"push"}`, asks(nil, "{}"), UnknownCase},
		{p.Initial(), Tool, "git", `{"what":"push"}`, asks([]string{"push"}, "{}"), CodeNone},
		{p.Initial(), Tool, "git", `{"what":"pull"}`, nil, CodeNone},
		{p.Initial(), Signal, "over", "", asks(nil, ""), UnknownAction},
		{p.Initial(), Signal, "over", "", asks([]string{"admin"}, ""), CodeNone},
		{p.Initial(), Tool, "reopen", "", asks(nil, ""), UnknownAction}, // what is for others is as if it were not there
		{p.Initial(), Tool, "reopen", "", asks([]string{"admin"}, ""), CodeNone},
		{closed, Tool, "reopen", "", asks([]string{"admin"}, ""), CodeNone},
		{closed, Tool, "reopen", "", asks(nil, ""), UnknownAction},
		{closed, Tool, "look", "", asks(nil, ""), InvalidTransition},
	} {
		var value Argument
		if len(x.args) > 9 && x.args[:9] == `{"what":"` {
			value = Text(x.args[9 : len(x.args)-2])
		}
		q := &Request{Kind: x.kind, Name: x.name, Who: x.who, Args: Lookup(func([]string) Argument { return value }), Facts: &guard.Call{Args: []byte(x.args), Registers: none{}}}
		if x.who != nil {
			q.Facts.Who = *x.who
		}
		if x.name == "reopen" && x.at == p.Initial() && x.code == CodeNone {
			x.code = InvalidTransition
		}
		v := p.Decide(x.at, q)
		if v.Code != x.code {
			t.Errorf("%s %s of %+v: %v (%v)", x.name, x.args, x.who, v.Code, v.Fault())
		}
		if len(v.Because()) > 0 && v.Code != GuardFailed {
			t.Errorf("%s tells %q", x.name, v.Because())
		}
		view := View{Configuration: x.at, Who: x.who}
		if shown := slices.Contains(p.ExactIn(view, x.kind), x.name); shown != (x.code == CodeNone || x.code == GuardFailed || x.code == UnknownCase) {
			t.Errorf("%s is shown to %+v: %v", x.name, x.who, shown)
		}
		if x.name == "pay" && x.who == ann && v.Symbol.Alternative != 0 || x.name == "pay" && v.Allowed && x.who != ann && v.Symbol.Alternative != 1 {
			t.Errorf("%s goes by %d", x.name, v.Symbol.Alternative)
		}
	}
	if v := p.Decide(p.Initial(), &Request{Kind: Signal, Name: "over", From: Operator}); !v.Allowed {
		t.Errorf("an operator: %+v", v)
	}
	if n := len(p.Cases(View{Who: asks(nil, "")}, Tool, "git")); n != 1 {
		t.Errorf("%d cases are known", n)
	}
	if p.Steady(Tool, "look", true) {
		t.Error("steady, though a state is for some alone")
	}
}

// TestAudienceAgainstReading draws whom bindings are for, and who asks.
func TestAudienceAgainstReading(t *testing.T) {
	words := []string{"a", "b", "c"}
	some := rapid.SliceOfNDistinct(rapid.SampledFrom(words), 0, 3, rapid.ID[string])
	rapid.Check(t, func(rt *rapid.T) {
		subjects, scopes, roles := some.Draw(rt, "subjects"), some.Draw(rt, "scopes"), some.Draw(rt, "roles")
		source := "version: 1\ninitial: s\nstates: {s: {tools: {x: {"
		said := ""
		for key, list := range map[string][]string{"subject": subjects, "scope": scopes} {
			if len(list) > 0 {
				said += key + ": " + list2yaml(list) + ", "
			}
		}
		if len(roles) > 0 {
			said += "claim: {r.oles: " + list2yaml(roles) + "}"
		}
		if said != "" {
			source += "for: {" + said + "}, "
		}
		p := parse(t, "drawn.yaml", []byte(source+"on_any: stay}}}}\n"))
		who := &guard.Who{Subject: rapid.SampledFrom(words).Draw(rt, "is"), Scopes: some.Draw(rt, "has scopes")}
		has := some.Draw(rt, "has roles")
		who.Claims = []byte(`{"r.oles":` + list2yaml(has) + `}`)
		if len(has) == 1 && rapid.Bool().Draw(rt, "bare") {
			who.Claims = []byte(`{"r.oles":"` + has[0] + `"}`)
		}
		meets := func(wanted, had []string) bool {
			return len(wanted) == 0 || slices.ContainsFunc(had, func(x string) bool { return slices.Contains(wanted, x) })
		}
		want := meets(subjects, []string{who.Subject}) && meets(scopes, who.Scopes) && meets(roles, has)
		v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: "x", Who: who})
		if v.Allowed != want || p.Visible(View{Who: who}, Tool, "x") != want {
			rt.Fatalf("%s\nof %+v with %s: %+v, want %v", source, who, who.Claims, v, want)
		}
	})
}

// list2yaml writes a list, which JSON reads as well.
func list2yaml(list []string) string {
	out := "["
	for i, x := range list {
		if i > 0 {
			out += ", "
		}
		out += `"` + x + `"`
	}
	return out + "]"
}
