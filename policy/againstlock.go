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
		code, what := "definition-changed", "what it is now"
		if slices.Contains(unlocked, tool) {
			code, what = "not-locked", "it"
		}
		for _, b := range p.holding(Tool, tool) {
			r.AddAbout(level, at{Line: b.rule.Line, Column: b.rule.Column}, code, tool,
				"%s%s: %s; look at %s, and then run 'fsm-proxy lock'", strictyaml.Quote(tool), consequence, why[tool], what)
		}
	}
	return r.Findings()
}
