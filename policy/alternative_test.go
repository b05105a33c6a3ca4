package policy

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

const alternativesSource = `
version: 1
initial: a
registers: {plan: text, calls: counter}
states:
  a:
    tools:
      refund:
        - {when: args.amount <= 100, because: Small ones only., on_success: b}
        - {when: args.amount <= 1000.0, because: At most 1000., on_any: c}
      deploy: {when: args.env == "staging", on_success: b}
      split:
        when: args.force == false
        because: No force.
        by: what
        cases:
          plan: stay
          apply:
            - {when: registers.plan == args.plan, because: Plan first., on_success: c}
            - {when: args.plan == "any", on_any: b}
      run_tests:
        outcomes: {red: result.structuredContent.failed > 0, none: result.structuredContent.ran == 0}
        on_red: b
        on_success: c
        on_any: stay
      free: stay
  b: {tools: {back: {on_any: a}}}
  c: {tools: {back: {on_any: a}}}
`

func (p *Policy) decideWith(c Configuration, tool, args string) Verdict {
	value := Argument{}
	if _, text, ok := strings.Cut(args, `"what":"`); ok {
		text, _, _ = strings.Cut(text, `"`)
		value = Text(text)
	}
	return p.Decide(c, &Request{Kind: Tool, Name: tool, Args: Lookup(func([]string) Argument { return value }), Facts: &guard.Call{Name: tool, Args: []byte(args), Registers: none{}}})
}

type none struct{}

func (none) Register(string) any { return nil }

func TestAlternatives(t *testing.T) {
	p := parse(t, "alternatives.yaml", []byte(alternativesSource))
	for _, x := range []struct {
		tool, args  string
		code        Code
		alternative int
		rule        int // its line
		because     string
	}{
		{"refund", `{"amount":100}`, CodeNone, 0, 9, ""},
		{"refund", `{"amount":1e2}`, CodeNone, 0, 9, ""},
		{"refund", `{"amount":101}`, CodeNone, 1, 10, ""},
		{"refund", `{"amount":1001}`, GuardFailed, 0, 8, "Small ones only.|At most 1000."},
		{"refund", `{"amount":"5"}`, GuardFailed, 0, 8, "Small ones only.|At most 1000."}, // an error refuses, and reads alike
		{"refund", `{}`, GuardFailed, 0, 8, "Small ones only.|At most 1000."},
		{"deploy", `{"env":"staging"}`, CodeNone, 0, 11, ""},
		{"deploy", `{"env":"production"}`, GuardFailed, 0, 11, ""},
		{"split", `{"what":"plan","force":false}`, CodeNone, 0, 12, ""},
		{"split", `{"what":"plan","force":true}`, GuardFailed, 0, 12, "No force."},
		{"split", `{"what":"taint","force":true}`, UnknownCase, 0, 12, ""},                                    // the case before the guard
		{"split", `{"what":"apply","force":false,"plan":"any"}`, GuardFailed, 0, 12, "No force.|Plan first."}, // unset is an error
		{"free", ``, CodeNone, 0, 26, ""},
	} {
		v := p.decideWith(p.Initial(), x.tool, x.args)
		if v.Allowed != (x.code == CodeNone) || v.Code != x.code || v.Rule.Line != x.rule || strings.Join(v.Because(), "|") != x.because ||
			v.Allowed && int(v.Symbol.Alternative) != x.alternative || v.Allowed != (v.Alternative != nil) {
			t.Errorf("%s %s: %+v", x.tool, x.args, v)
		}
	}
	twice := p.decideWith(p.Initial(), "deploy", `{"env":"staging","ENV":"production"}`)
	if twice.Allowed || !twice.Unclear {
		t.Errorf("an argument that others read otherwise: %+v", twice)
	}
	if v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: "deploy"}); v.Allowed || v.Code != GuardFailed {
		t.Errorf("a guard without facts: %+v", v)
	}
}

func TestNamedOutcomes(t *testing.T) {
	p := parse(t, "alternatives.yaml", []byte(alternativesSource))
	v := p.decideWith(p.Initial(), "run_tests", "{}")
	for _, x := range []struct {
		of     Outcome
		result string
		name   string
		to     string
		fault  bool
	}{
		{Success, `{"structuredContent":{"failed":2,"ran":3}}`, "red", "b", false},
		{Error, `{"structuredContent":{"failed":2,"ran":3},"isError":true}`, "red", "b", false},
		{Success, `{"structuredContent":{"failed":0,"ran":3}}`, "success", "c", false},
		{Success, `{"structuredContent":{"failed":0,"ran":0}}`, "none", "a", false},
		{Error, `{"structuredContent":{"failed":0,"ran":1}}`, "error", "a", false},
		{Success, `{"structuredContent":{}}`, "unknown", "a", true},
		{Error, `{"content":[]}`, "error", "a", true},
		{Success, `{"structuredContent":{"failed":"2"}}`, "unknown", "a", true},
		{Success, `{"structuredContent":{"failed":1,"Failed":0}}`, "unknown", "a", true},
	} {
		o, err := v.Alternative.Outcome(x.of, &guard.Call{Result: []byte(x.result), Registers: none{}})
		step, failed := p.Next(p.Initial(), v.Symbol, o)
		if v.Alternative.OutcomeName(o) != x.name || (err != nil) != x.fault || failed != nil || p.StateName(step.To.State) != x.to {
			t.Errorf("%v of %s: %s, %v, to %s, %v", x.of, x.result, v.Alternative.OutcomeName(o), err, p.StateName(step.To.State), failed)
		}
		if typed, _ := errors.AsType[*guard.Error](err); x.fault && typed == nil {
			t.Errorf("%s: %v is no error of a guard", x.result, err)
		}
	}
	if _, err := p.Next(p.Initial(), v.Symbol, named(2)); err == nil {
		t.Error("stepped by an outcome that there is not")
	}
}

// TestAlternativesAgainstReading draws lists of alternatives, and compares what is decided with
// what the list says, read from its top.
func TestAlternativesAgainstReading(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var limits []int
		source := "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      x:\n"
		for range rapid.IntRange(1, 5).Draw(rt, "alternatives") {
			n := rapid.IntRange(0, 6).Draw(rt, "limit")
			limits = append(limits, n)
			source += "        - {when: \"args.n <= " + string(rune('0'+n)) + "\", on_any: b}\n"
		}
		p := parse(t, "drawn.yaml", []byte(source+"  b: {tools: {y: {on_any: a}}}\n"))
		n := rapid.IntRange(0, 7).Draw(rt, "n")
		text := string(rune('0' + n))
		error := rapid.SampledFrom([]string{"", "", `"`}).Draw(rt, "as a text")
		v := p.decideWith(p.Initial(), "x", `{"n":`+error+text+error+`}`)
		want := -1
		for i, limit := range limits {
			if want < 0 && n <= limit && error == "" {
				want = i
			}
		}
		if v.Allowed != (want >= 0) || v.Allowed && int(v.Symbol.Alternative) != want {
			rt.Fatalf("%s%s of\n%s%+v; want %d", error, text, source, v, want)
		}
	})
}
