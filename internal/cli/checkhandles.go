package cli

import (
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// handleCheck is what check knows of the run key handle. The zero value is nothing:
// it is only noted what would be out of reach.
type handleCheck struct {
	known    bool   // a configuration says whether it is the key
	used     bool   // it is
	argument string // its name
}

// handlesOf is what run's flags say of the key handle.
func handlesOf(f *runFlags) handleCheck {
	keys, err := f.runs.keysOf(f.listen.address != "", f.protocol)
	return handleCheck{known: err == nil, used: keys[wire.Modern].Kind == proxy.KeyHandle, argument: f.runs.handleArg}
}

// findings says which tools that the policy binds cannot be called by handle.
func (h handleCheck) findings(p *policy.Policy, inv *inventory) policy.Findings {
	level, argument := policy.LevelNote, handle.DefaultArgument
	switch {
	case h.known && !h.used:
		return nil
	case h.known:
		level, argument = policy.LevelWarning, h.argument
	}
	why := make(map[string]string)
	for tool, reason := range handle.Misfits(inv.tools, argument) {
		why[tool] = reason.Text()
	}
	return p.AgainstHandles(why, level)
}
