package catalogue

import (
	"slices"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Signals are the tool by which the agent sends signals, as lists have it: equal ones are one,
// so that looks compare. The zero value has none yet. It is safe for concurrent use.
type Signals struct {
	mu   sync.Mutex // guards what follows
	have map[signalsKey]*Own
}

type signalsKey struct {
	beside *Own
	tool   string // its definition; "": it is not listed
}

// maxSignals bounds what is kept.
const maxSignals = 1024

// Own returns what is added to the list of tools in a snapshot of a run whose policy in force
// has signals for the agent, on a surface, beside other tools of the proxy's. Under the tool's
// name nothing of the upstream's is shown. argument is one that the tool wants too; "": none.
func (x *Signals) Own(beside *Own, at run.Snapshot, static bool, argument string) *Own {
	names := at.Signals()
	says := func(name string) string { return at.Policy.Binding(at.At, policy.Signal, name, false).Says }
	if static {
		names, says = at.InForce().Exact(policy.Signal), at.InForce().SignalText
		names = slices.DeleteFunc(names, func(name string) bool { return !at.InForce().BoundFor(policy.Signal, name, false, at.Who) })
	}
	key := signalsKey{beside: beside}
	if len(names) > 0 {
		key.tool = string(signalTool(names, says, argument))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if own := x.have[key]; own != nil {
		return own
	}
	own := new(Own)
	if beside != nil {
		*own = *beside
	}
	own.Names = append(slices.Clone(own.Names), policy.SignalTool)
	if key.tool != "" {
		own.Tools = append(slices.Clone(own.Tools), []byte(key.tool))
	}
	if x.have == nil || len(x.have) >= maxSignals {
		x.have = make(map[signalsKey]*Own)
	}
	x.have[key] = own
	return own
}

// signalTool is the definition of the tool that sends signals of these names, of which
// each says what it is, "": nothing.
func signalTool(names []string, says func(name string) string, argument string) []byte {
	text := "Says what no other tool does, and what decides what comes next. Signals:"
	for _, name := range names {
		text += "\n" + name
		if said := strings.TrimSpace(says(name)); said != "" {
			text += ": " + said
		}
	}
	out := wire.AppendString([]byte(`{"name":"`+policy.SignalTool+`","title":"Send a signal","description":`), text)
	out = append(out, `,"inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The signal.","enum":[`...)
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = wire.AppendString(out, name)
	}
	out = append(out, `]},"note":{"type":"string","maxLength":1024,"description":"Why, for the record."}},"required":["name"],"additionalProperties":false},`+
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`...)
	if argument != "" {
		out, _ = handle.AddArgument(out, argument) // it fits
	}
	return out
}
