// Package handle is what the run key `handle` does to bytes: a client of the modern
// era, which has no session, says by an argument of its calls which run they belong
// to. [AddArgument] adds that argument to the definition of a tool, [Take] takes it
// out of a call again, before anything is decided and before the upstream sees it.
// [Start], [End] and [List] are the tools by which a client gets, ends and finds
// handles.
//
// It knows no run: bytes in, bytes out.
package handle

import (
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// The names of the tools. An upstream's tool that has one of them is out of reach
// where they are offered.
const (
	StartName = "fsm_start_run"
	EndName   = "fsm_end_run"
	ListName  = "fsm_list_runs"
)

// Own reports whether a tool's name is one of this package's own.
func Own(name string) bool { return name == StartName || name == EndName || name == ListName }

// The definitions. Nothing outside of the proxy is touched by these tools, so that
// openWorldHint is false.
const (
	startTool = `{"name":"` + StartName + `","title":"Start a run",` +
		`"description":"Starts a run: one walk through the work, in which each step decides what comes next. ` +
		`Returns its handle, {argument}, which every other tool wants as an argument of this name. ` +
		`Start one run for one task, and use its handle until the task is done; keep it to yourself. A run ends {lifetime}.",` +
		`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
		`"outputSchema":{"type":"object","properties":{` +
		`"{argument}":{"type":"string","description":"The handle: an argument of every other tool."},` +
		`"state":{"type":"string","description":"Where the run stands."},` +
		`"expires_at":{"type":"string","format":"date-time","description":"When the run ends at the latest."},` +
		`"idle_seconds":{"type":"integer","description":"After how long without use the run ends."}},` +
		`"required":["{argument}"]},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`

	againTool = `{"name":"` + StartName + `","title":"Start a new run",` +
		`"description":"Starts a new run where the last one is complete: the work begins again.",` +
		`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
		`"outputSchema":{"type":"object","properties":{` +
		`"state":{"type":"string","description":"Where the run stands."}}},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`

	endTool = `{"name":"` + EndName + `","title":"End a run",` +
		`"description":"Ends a run whose work is done or given up. Its handle leads nowhere afterwards.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"{argument}":{"type":"string","description":"The run to end, as ` + StartName + ` returned it."}},` +
		`"required":["{argument}"],"additionalProperties":false},` +
		`"outputSchema":{"type":"object","properties":{"ended":{"type":"boolean"}},"required":["ended"]},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":false}}`

	listTool = `{"name":"` + ListName + `","title":"List my runs",` +
		`"description":"Lists the runs that you have started and that have not ended, the oldest first. One whose handle nobody but you has kept is told by its name.",` +
		`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
		`"outputSchema":{"type":"object","properties":{"runs":{"type":"array","items":{"type":"object","properties":{` +
		`"{argument}":{"type":"string"},"name":{"type":"string"},"state":{"type":"string"},"complete":{"type":"boolean"},` +
		`"expires_at":{"type":"string","format":"date-time"}},"required":["complete"]}}},` +
		`"required":["runs"]},` +
		`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`
)

// Start returns the tool that starts a run and returns its handle; argument is a valid
// name, under which the other tools want it.
func Start(argument string, l Lifetime) []byte {
	return []byte(strings.NewReplacer("{argument}", argument, "{lifetime}", l.String()).Replace(startTool))
}

// Again returns the tool that starts a new run where something else than a handle says
// which run a request belongs to.
func Again() []byte { return []byte(againTool) }

// End returns the tool that ends a run.
func End(argument string) []byte {
	return []byte(strings.ReplaceAll(endTool, "{argument}", argument))
}

// List returns the tool that lists the runs of who asks.
func List(argument string) []byte {
	return []byte(strings.ReplaceAll(listTool, "{argument}", argument))
}

// Run is what is told of a run.
type Run struct {
	Handle   string // "": whose it is has it alone
	Name     string // by which it is told then
	State    string // "": it is not told
	Complete bool
	Expires  time.Time // zero: it does not
}

// append appends the run's members.
func (r Run) append(out []byte, argument string) []byte {
	key, value := argument, r.Handle
	if value == "" && r.Name != "" {
		key, value = "name", r.Name
	}
	out = append(wire.AppendString(out, key), ':')
	out = wire.AppendString(out, value)
	if r.State != "" {
		out = wire.AppendString(append(out, `,"state":`...), r.State)
	}
	if !r.Expires.IsZero() {
		out = append(out, `,"expires_at":"`...)
		out = append(r.Expires.UTC().AppendFormat(out, time.RFC3339), '"')
	}
	return out
}

// Started returns the result of Start. more is a sentence on what to do next, or empty.
func Started(argument string, r Run, l Lifetime, more string) []byte {
	structured := r.append([]byte{'{'}, argument)
	if l.Idle > 0 {
		structured = append(structured, `,"idle_seconds":`...)
		structured = strconv.AppendInt(structured, int64(l.Idle/time.Second), 10)
	}
	text := "Run started. Give " + argument + " \"" + r.Handle + "\" with every call. It ends " + l.String() + "."
	return result(strings.TrimSuffix(text+" "+more, " "), append(structured, '}'))
}

// StartedAgain returns the result of Again, with the state in which the run begins, or "".
func StartedAgain(state, more string) []byte {
	structured := []byte(`{}`)
	if state != "" {
		structured = append(wire.AppendString([]byte(`{"state":`), state), '}')
	}
	return result(strings.TrimSuffix("A new run has begun. "+more, " "), structured)
}

// Ended returns the result of End.
func Ended() []byte { return result("The run has ended.", []byte(`{"ended":true}`)) }

// Listed returns the result of List.
func Listed(argument string, runs []Run) []byte {
	structured := []byte(`{"runs":[`)
	for i, r := range runs {
		if i > 0 {
			structured = append(structured, ',')
		}
		structured = r.append(append(structured, '{'), argument)
		structured = append(strconv.AppendBool(append(structured, `,"complete":`...), r.Complete), '}')
	}
	structured = append(structured, `]}`...)
	return result(string(structured), structured)
}

// result returns a tool's result: the structured content, and a text that says the same
// to clients that read no other.
func result(text string, structured []byte) []byte {
	out := append(wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text), `}],"structuredContent":`...)
	return append(append(out, structured...), '}')
}

// Lifetime is how long a run lasts. Zero is without end.
type Lifetime struct {
	Idle time.Duration // from its last use
	Age  time.Duration // from its beginning
}

// String is the rest of a sentence that begins with "a run ends".
func (l Lifetime) String() string {
	idle := "when it has not been used for " + inWords(l.Idle)
	switch {
	case l.Idle <= 0 && l.Age <= 0:
		return "when " + EndName + " is called"
	case l.Age <= 0:
		return idle
	case l.Idle <= 0:
		return inWords(l.Age) + " after it began"
	}
	return idle + ", and at the latest " + inWords(l.Age) + " after it began"
}

// inWords returns a duration in the largest unit of which it is a multiple.
func inWords(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / u.unit; {
		case d%u.unit != 0:
		case n == 1:
			return "1 " + u.name
		default:
			return strconv.FormatInt(int64(n), 10) + " " + u.name + "s"
		}
	}
	return d.String()
}
