package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// AskingWho returns, as file:line, the lines of a policy that hang on who asks: each for, and each expression that
// reads who. An operator's signals are not among them, since an operator may send each.
func AskingWho(p *policy.Policy) []string {
	var all []policy.Place
	note := func(at policy.Place, program *guard.Program) {
		if program.Reads().Who {
			at.File, at.Column = cmp.Or(at.File, p.File()), 0
			all = append(all, at)
		}
	}
	for s := range p.States() {
		for _, x := range p.Audience(policy.State(s)) {
			note(x.Place, x.Program)
		}
	}
	for b := range p.Bindings() {
		if b.Kind == policy.Signal && b.From == policy.Operator {
			continue
		}
		for a := range b.Alternatives() {
			for _, x := range a.For {
				note(x.Place, x.Program)
			}
			for _, x := range a.Guards {
				note(x.Place, x.Program)
			}
			for _, x := range a.Outcomes {
				note(x.Place, x.Program)
			}
			for _, o := range a.AllOutcomes() {
				for _, x := range a.Sets(o) {
					for _, v := range x.Values {
						note(x.Place, v)
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b policy.Place) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	lines := make([]string, 0, len(all))
	for _, at := range slices.Compact(all) {
		lines = append(lines, fmt.Sprintf("%s:%d", at.File, at.Line))
	}
	return lines
}
