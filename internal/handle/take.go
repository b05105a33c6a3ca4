package handle

import (
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Taken is what a request says of its run.
type Taken struct {
	Handle string // what the client gave, unchecked
	Given  bool   // it gave one
	// Edits take it out of the request's bytes. There are none where it gave none.
	Edits []wire.Edit
}

// Fault says what is wrong with how a request gives a handle; empty: nothing. It is
// the text of an error, JSON-RPC's invalid request.
type Fault string

// Take reads the handle of a request: from the argument of a tools/call, or from
// _meta["fsm-proxy/run"] of any request. Both may be given if they are the same.
func Take(m *wire.Message, argument string) (Taken, Fault) {
	var t Taken
	if m.Method == "tools/call" {
		if fault := t.argument(m, argument); fault != "" {
			return Taken{}, fault
		}
	}
	if fault := t.meta(m); fault != "" {
		return Taken{}, fault
	}
	return t, ""
}

// argument takes the handle out of a call's arguments. A name that some readers take
// for the argument's is refused: they would find a handle where there is none.
func (t *Taken) argument(m *wire.Message, argument string) (fault Fault) {
	raw := m.Bytes(m.P.Arguments)
	if len(raw) == 0 || raw[0] != '{' {
		return ""
	}
	_ = wire.Members(raw, func(name string, at wire.Span) error {
		switch {
		case fault != "": // the first one is told
		case wire.Lookalike(name, argument):
			fault = Fault("the argument " + strconv.QuoteToASCII(name) + " looks like " + strconv.Quote(argument) + ", which says what run a call belongs to: leave it out, or write that")
		case name != argument:
		case t.Given:
			fault = Fault("the argument " + strconv.Quote(argument) + " is given twice")
		default:
			fault = t.take(raw[at.Start:at.End], "the argument "+strconv.Quote(argument))
		}
		return nil
	})
	if fault == "" && t.Given {
		t.Edits = wire.Without(m.Raw, m.P.Arguments, func(name string) bool { return name == argument })
	}
	return fault
}

func (t *Taken) take(value []byte, what string) Fault {
	if t.Handle, t.Given = wire.Text(value); !t.Given {
		return Fault(what + " must be a string: the run's handle, as " + StartName + " returned it")
	}
	return ""
}

// meta takes the handle out of _meta.
func (t *Taken) meta(m *wire.Message) Fault {
	if m.P.Modern == nil || !m.P.Modern.RunAt.Present() {
		return ""
	}
	before := *t
	if fault := t.take(m.Bytes(m.P.Modern.RunAt), "_meta["+strconv.Quote(wire.MetaRun)+"]"); fault != "" {
		return fault
	}
	if before.Given && before.Handle != t.Handle {
		return Fault("the call names two runs, one in its arguments and one in _meta")
	}
	edits := wire.Without(m.Raw, m.P.Meta, func(name string) bool { return name == wire.MetaRun })
	if m.P.Meta.Start < m.P.Arguments.Start {
		t.Edits = append(edits, before.Edits...)
	} else {
		t.Edits = append(before.Edits, edits...)
	}
	return ""
}
