package catalogue

import (
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Handles are what stateless clients see who find their run by handle: tools by which runs
// begin and end, and an argument of all others that says which run a call belongs to. It is
// immutable but for what it remembers of lists, and safe for concurrent use.
type Handles struct {
	Argument *Argument
	Life     handle.Lifetime // of a run
	Hint     string          // in the instructions
	NeedsRun string          // what a request without a handle is told
	own      *Own            // what is added to tools
	lists    *Own            // own for those who are told their runs, too
}

// NewHandles returns Handles whose argument has a name.
func NewHandles(argument string, life handle.Lifetime) *Handles {
	h := &Handles{Argument: NewArgument(argument), Life: life}
	h.Hint = "Call " + handle.StartName + " first, and give the " + argument + " that it returns with every call."
	h.NeedsRun = "This needs a run. Call the tool " + handle.StartName + ", and give the " + argument +
		" that it returns with every call: as an argument of tools, as _meta[\"" + wire.MetaRun + "\"] of anything else."
	start := [][]byte{handle.Start(argument, h.Life), handle.End(argument)}
	h.own = &Own{Tools: start, Argument: h.Argument}
	h.lists = &Own{Tools: append(slices.Clone(start), handle.List(argument)), Argument: h.Argument}
	return h
}

// Own returns what is added to the list of tools; lists tells that whoever asks is told their
// runs.
func (h *Handles) Own(lists bool) *Own {
	if lists {
		return h.lists
	}
	return h.own
}

// restart is the tool by which a run begins anew that is complete, reserved is its name where it may be.
var (
	restart  = &Own{Tools: [][]byte{handle.Again()}, Names: []string{handle.StartName}}
	reserved = &Own{Names: restart.Names}
)

// Restarts returns what is added to the list of tools in a snapshot of a run that clients begin anew,
// on a surface; nil: nothing.
func Restarts(at run.Snapshot, static bool) *Own {
	stops := at.InForce().OnComplete() == policy.Stop
	switch {
	case static && stops, !static && at.At.Complete:
		return restart
	case stops:
		return reserved
	}
	return nil
}
