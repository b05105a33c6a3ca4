package policy

import (
	"maps"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// WithoutLock returns a finding at the policy's pin: there is no lock to compare tools
// with. why is the whole sentence; fatal is whether the proxy does not start.
func (p *Policy) WithoutLock(why string, fatal bool) Findings {
	r, level := newReader(p.file), LevelWarning
	if fatal {
		level = LevelError
	}
	r.Add(level, p.pinAt, "no-lock", "%s", why)
	return r.Findings()
}

// AgainstLock returns findings on which tools that the policy binds are not what was locked. why has
// what is wrong with each tool, a sentence, and unlocked the tools that the lock does
// not have.
func (p *Policy) AgainstLock(why map[string]string, unlocked []string) Findings {
	r, level, consequence := newReader(p.file), LevelWarning, differsFromPin.one
	if p.pin == PinRefuse {
		level, consequence = LevelError, refusedByPin.one
	}
	for _, tool := range slices.Sorted(maps.Keys(why)) {
		text := strictyaml.Quote(tool) + consequence + ": " + why[tool]
		for _, b := range p.holding(Tool, tool) {
			place := at{Line: b.rule.Line, Column: b.rule.Column}
			if slices.Contains(unlocked, tool) {
				r.AddAbout(level, place, "not-locked", tool, "%s; look at it, and then run 'fsm-proxy lock'", text)
			} else {
				r.AddAbout(level, place, "definition-changed", tool, "%s; look at what it is now, and then run 'fsm-proxy lock'", text)
			}
		}
	}
	return r.Findings()
}
