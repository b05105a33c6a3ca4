package policy

import (
	"fmt"
	"testing"
)

// What hangs on a result hangs on the call as well where an expression over the result, or what is set from it, reads
// anything else.
func TestLateByCall(t *testing.T) {
	for way, want := range map[string]bool{
		`{on_success: b}`:                                                       false,
		`{when: args.x == 1.0, on_success: b}`:                                  false,
		`{on_success: {to: b, set: {plan: args.plan}}}`:                         false, // which is worked out before
		`{on_success: {to: b, set: {plan: result.structuredContent.plan}}}`:     false,
		`{outcomes: {red: result.structuredContent.n > 0}, on_red: b}`:          false,
		`{outcomes: {red: result.structuredContent.n == args.n}, on_red: b}`:    true,
		`{outcomes: {red: size(registers.seen) > result.structuredContent.n}}`:  true,
		`{outcomes: {red: result.structuredContent.by == who.subject}}`:         true,
		`{outcomes: {red: result.structuredContent.state == run.state}}`:        true,
		`{outcomes: {red: timestamp(result.structuredContent.at) < now}}`:       true,
		`{on_error: {set: {plan: result.structuredContent.plan + args.plan}}}`:  true,
		`{on_success: {to: b, set: {seen: {add: result.structuredContent.x}}}}`: false,
	} {
		p := parse(t, "late.yaml", fmt.Appendf(nil, "version: 1\ninitial: a\nregisters: {plan: text, seen: {set: text, max: 5}}\nstates:\n  a:\n    tools:\n      x: %s\n  b: {tools: {y: a}}\n", way))
		a := p.AlternativeOf(p.Initial(), Symbol{Kind: Tool, Name: "x"})
		if a == nil || a.LateByCall() != want {
			t.Errorf("%s: %v, want %t", way, a, want)
		}
		for _, s := range []Symbol{{Kind: Tool, Name: "y"}, {Kind: Tool, Name: "x", Alternative: 1}} {
			if p.AlternativeOf(p.Initial(), s) != nil {
				t.Errorf("there is a way of %+v", s)
			}
		}
	}
}
