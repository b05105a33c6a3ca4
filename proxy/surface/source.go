package surface

import (
	"context"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// Source is what holds for the lists of all sessions. It is safe for concurrent use.
type Source struct {
	*catalogue.Catalogue
	Pins      atomic.Pointer[catalogue.Pins]
	Policy    func() *policy.Policy                        // in force
	Argument  *catalogue.Argument                          // that tools have besides; nil: none
	Reading   func() (context.Context, context.CancelFunc) // bounds the reading of a list
	Go        func(f func()) bool                          // runs f on a goroutine, unless it is too late for that
	Telemetry *observe.Telemetry
	Log       hclog.Logger
}

// Found logs what is new in a list that has come from the upstream.
func (s *Source) Found(v catalogue.View) {
	now := s.Policy()
	differences, findings := s.Notice(v, now, s.Pins.Load(), s.Argument)
	for _, d := range differences {
		s.tellDrift(now, d)
	}
	for _, f := range findings {
		if f.Level == policy.LevelNote {
			s.Log.Info("policy: " + f.String())
		} else {
			s.Log.Warn("policy: " + f.String())
		}
	}
}

func (s *Source) tellDrift(now *policy.Policy, d catalogue.Difference) {
	s.Telemetry.DefinitionChanged(d.Change)
	if d.Change == lock.Unlisted { // of which the findings tell
		return
	}
	does := "nothing is done about it"
	if now.Pin() == policy.PinRefuse {
		does = "the tool is hidden and refused"
	}
	s.Log.Warn("a tool is not what was locked: "+lock.Changes{d.Change}.Sentence()+"; "+does+
		"; look at it, and then run 'fsm-proxy lock'", "tool", wire.Clip(d.Tool), "change", d.Change.String())
}

// FoundAgain looks at the tools at hand anew, with a new policy or a new lock.
func (s *Shown) FoundAgain() {
	if s.Policy().Pin() == policy.PinOff {
		return
	}
	if conn := s.Of.Live(); conn != nil {
		if l := conn.Cached(wire.Tools); l != nil {
			s.Found(catalogue.View{List: l})
		}
	}
}
