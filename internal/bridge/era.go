package bridge

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"slices"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Client is how a client speaks, and so what it wants of its answers. The zero value
// has a session, which begins with initialize.
type Client struct{ era wire.Era }

// Stateless is a client whose requests stand alone.
var Stateless = Client{wire.Modern}

// ClientOf is a client that speaks an era.
func ClientOf(era wire.Era) Client { return Client{era} }

// SpokenIn is the client of a request, by what that says of itself.
func SpokenIn(m *wire.Message) Client { return Client{m.Era()} }

// Index is 0 for clients with sessions, 1 for stateless ones.
func (c Client) Index() int { return int(c.era) }

// Other is how other clients speak.
func (c Client) Other() Client { return Client{wire.Modern - c.era} }

// Stateless reports whether the client's requests stand alone.
func (c Client) Stateless() bool { return c.era == wire.Modern }

// Follows reports whether the client can ask about the tasks of a server: those are
// not translated.
func (c Client) Follows(s Server) bool { return c.era == s.era }

// tasksExtension is the capability of tasks where requests stand alone.
const tasksExtension = "io.modelcontextprotocol/tasks"

// Amends reports whether a server's result wants more for the client than the
// request's id.
func (c Client) Amends(from Server) bool { return c.Stateless() && from.era != wire.Modern }

// Complete gives a server's result the members that the client wants in one that is
// all that comes, and returns the members of _meta with those that are to be set
// besides. info is how the server introduces itself; nil: it does not.
func (c Client) Complete(a *wire.Amendment, m *wire.Message, from Server, info []byte, names []string, values [][]byte) ([]string, [][]byte) {
	if !c.Amends(from) {
		return names, values
	}
	a.Set(m.R.ResultTypeAt, "resultType", []byte(`"complete"`))
	if info != nil {
		names, values = append(names, wire.MetaServerInfo), append(values, info)
	}
	return names, values
}

// Result is a result of the proxy's own with the members that the client wants in
// it. fresh says for how many milliseconds it may be kept; empty: it is none that is kept.
func (c Client) Result(result, info []byte, fresh string) []byte {
	if !c.Stateless() {
		return result
	}
	at := make(map[string]wire.Span)
	_ = wire.Members(result, func(name string, value wire.Span) error { at[name] = value; return nil })
	a := wire.Amend(result, wire.Span{End: int32(len(result))})
	a.Set(at["resultType"], "resultType", []byte(`"complete"`))
	if fresh != "" {
		a.Set(at["ttlMs"], "ttlMs", []byte(fresh))
		a.Set(at["cacheScope"], "cacheScope", []byte(`"private"`))
	}
	if info != nil {
		a.SetMeta(at["_meta"], []string{wire.MetaServerInfo}, [][]byte{info})
	}
	return a.Bytes()
}

// Code is a server's error code as the client has it (2026-07-28, "Error codes").
// reads tells that the request reads a resource.
func (c Client) Code(code int, from Server, reads bool) int {
	switch {
	case c.Stateless() && code == wire.CodeResourceNotFound:
		return wire.CodeInvalidParams
	case c.Stateless() && code == wire.CodeURLElicitation: // which this client cannot do
		return wire.CodeInternal
	case !c.Stateless() && from.era == wire.Modern && code == wire.CodeInvalidParams && reads:
		return wire.CodeResourceNotFound
	}
	return code
}

// Failure is a server's error under the client's id, with a code of the client's.
func (c Client) Failure(m *wire.Message, id []byte, code int) []byte {
	a := wire.Amend(m.Raw, m.Error)
	a.Add(wire.Edit{At: m.ID, With: id})
	if code != m.ErrorCode {
		_ = wire.Members(m.Bytes(m.Error), func(name string, at wire.Span) error {
			if name == "code" {
				a.Add(wire.Edit{At: wire.Span{Start: at.Start + m.Error.Start, End: at.End + m.Error.Start}, With: strconv.AppendInt(nil, int64(code), 10)})
			}
			return nil
		})
	}
	return a.Bytes()
}

// Visit is an error that asks the user to visit a URL (-32042), which is the way of
// sessions, as the result by which a stateless client that can is asked for that; nil where it is
// none. Nothing was done yet, and the client's next request is another.
func (c Client) Visit(request, m *wire.Message) []byte {
	if !c.Stateless() || m.Kind != wire.Failure || m.ErrorCode != wire.CodeURLElicitation ||
		!has(wire.Member(request.Bytes(request.P.Modern.Capabilities), "elicitation"), "url") {
		return nil
	}
	var asked []jsontext.Value
	if err := json.Unmarshal(wire.Member(wire.Member(m.Bytes(m.Error), "data"), "elicitations"), &asked); err != nil || len(asked) == 0 {
		return nil
	}
	var names []string
	var values [][]byte
	for i, params := range asked {
		names = append(names, "url"+strconv.Itoa(i+1))
		values = append(values, wire.Object([]string{"method", "params"}, [][]byte{[]byte(`"elicitation/create"`), params}))
	}
	result := wire.Object([]string{"resultType", "inputRequests"}, [][]byte{[]byte(`"` + wire.ResultInputRequired + `"`), wire.Object(names, values)})
	return wire.ResultAnswer(request.Bytes(request.ID), result)
}

// Declares reports whether the client of a stateless request says that it can be asked by
// a method, or, where that is empty, by any.
func Declares(request *wire.Message, method string) bool {
	capabilities := request.Bytes(request.P.Modern.Capabilities)
	if method == "" {
		return slices.ContainsFunc(Asked[:], func(name string) bool { return has(capabilities, name) })
	}
	name := AskedBy(method)
	return name != "" && has(capabilities, name)
}

// has reports whether an object has a member that is not null.
func has(object []byte, name string) bool {
	value := wire.Member(object, name)
	return value != nil && string(value) != "null"
}

// Server is how an upstream speaks, and so what it wants of requests and what its
// answers mean. The zero value has sessions.
type Server struct{ era wire.Era }

// Hidden is what an upstream is not told of a client. The zero value is nothing.
type Hidden struct{ Sampling, Elicitation, Roots, Tasks bool }

func (h Hidden) capability(name string) bool {
	switch name {
	case "sampling":
		return h.Sampling
	case "elicitation":
		return h.Elicitation
	case "roots":
		return h.Roots
	}
	return false
}

// Request is a client's request as the upstream reads it: without what another era or
// nobody but the proxy reads, and with what it needs to know of the client. What is
// of its era already stays as it is, less what is hidden.
func (s Server) Request(m *wire.Message, from Client, hidden Hidden, introduce func() Introduction) *wire.Message {
	switch {
	case from.Stateless() && s.era == wire.Legacy:
		return Reread(withoutEra(m), m)
	case from.Stateless():
		return s.limited(m, hidden)
	case s.era == wire.Modern:
		return Reread(introduced(m, introduce()), m)
	}
	return m
}

// Reread reads a request that was edited; m is what it was before.
func Reread(raw []byte, m *wire.Message) *wire.Message {
	again, err := wire.Read(raw, wire.FromUpstream)
	if err != nil { // it was read before, and the edits are values of their own
		return m
	}
	return again
}

// withoutEra is a request without what makes it one that stands alone: a server of
// both eras would take it for one.
func withoutEra(m *wire.Message) []byte {
	a := wire.Amend(m.Raw, m.Params)
	a.Add(wire.Without(m.Raw, m.P.Meta, func(name string) bool {
		switch name {
		case wire.MetaVersion, wire.MetaCapabilities, wire.MetaClientInfo, wire.MetaLogLevel, wire.MetaRun:
			return true
		}
		return false
	})...)
	if m.P.InputResponses.Present() || m.P.RequestStateAt.Present() {
		a.Add(wire.Without(m.Raw, m.Params, func(name string) bool { return name == "inputResponses" || name == "requestState" })...)
	}
	return a.Bytes()
}

// limited is a request without the proxy's own handle and what is hidden.
func (s Server) limited(m *wire.Message, hidden Hidden) *wire.Message {
	at := m.P.Modern.Capabilities
	capabilities := m.Bytes(at)
	hidden.Tasks = hidden.Tasks && wire.Member(wire.Member(capabilities, "extensions"), tasksExtension) != nil
	if hidden == (Hidden{}) && !m.P.Modern.RunAt.Present() {
		return m
	}
	a := wire.Amend(m.Raw, m.Params)
	a.Add(wire.Without(m.Raw, m.P.Meta, func(name string) bool { return name == wire.MetaRun })...)
	if hidden.Tasks {
		_ = wire.Members(capabilities, func(name string, value wire.Span) error {
			if name == "extensions" {
				extensions := wire.Span{Start: at.Start + value.Start, End: at.Start + value.End}
				a.Add(wire.Without(m.Raw, extensions, func(name string) bool { return name == tasksExtension })...)
			}
			return nil
		})
	}
	a.Add(wire.Without(m.Raw, at, hidden.capability)...)
	return Reread(a.Bytes(), m)
}

// introduced is a request with what the upstream needs to know of its client.
func introduced(m *wire.Message, of Introduction) []byte {
	names, values := of.meta()
	if !m.Params.Present() {
		params := append([]byte(`,"params":{"_meta":`), wire.Object(names, values)...)
		end := int32(len(m.Raw))
		for m.Raw[end-1] != '}' {
			end--
		}
		end--
		return wire.Splice(m.Raw, wire.Edit{At: wire.Span{Start: end, End: end}, With: append(params, '}')})
	}
	a := wire.Amend(m.Raw, m.Params)
	a.SetMeta(m.P.Meta, names, values)
	return a.Bytes()
}

// Asked are the capabilities of a client by which an upstream may ask it.
var Asked = [...]string{"elicitation", "roots", "sampling"}

// askedBy are the requests of an upstream's by which a client is asked, with the capability that
// each needs.
var askedBy = map[string]string{
	"sampling/createMessage": "sampling",
	"elicitation/create":     "elicitation",
	"roots/list":             "roots",
}

// AskedBy is the capability that a request of an upstream's needs; empty: it is none
// by which a client is asked.
func AskedBy(method string) string { return askedBy[method] }

// Meaning is what a server's result is to the request that it answers.
type Meaning uint8

// The meanings of results.
const (
	Complete      Meaning = iota
	InputRequired         // nothing is done yet: it asks the client for input
	Task                  // a task stands for it
	// Unfitting merely looks unfinished: it is of another era, or a task that was not
	// asked for or has no id. Nothing could tell what becomes of it.
	Unfitting
	Unknown // of a type that nobody knows
)

// Unfinished reports whether what answers a request is no result yet.
func (m Meaning) Unfinished() bool { return m == InputRequired || m == Task }

// Meaning is what a result is to a request.
func (s Server) Meaning(request, m *wire.Message) Meaning {
	switch kind := m.R.ResultType; {
	case m.Kind != wire.Result:
		return Complete
	case s.TaskState(request, m) != nil:
		return Task
	case s.era == wire.Modern && kind == wire.ResultInputRequired:
		return InputRequired
	case kind == wire.ResultInputRequired, kind == wire.ResultTask,
		m.R.Task.Present() && wire.Member(m.Bytes(m.Result), payload(request.Method)) == nil:
		return Unfitting
	case s.era == wire.Modern && m.R.ResultTypeAt.Present() && kind != wire.ResultComplete:
		return Unknown
	}
	return Complete
}

// payload is the member that every result of a method has.
func payload(method string) string {
	switch method {
	case "resources/read":
		return "contents"
	case "prompts/get":
		return "messages"
	}
	return "content"
}

// TaskState is the state of the task that stands for a request's result; nil: none does.
// A stateless server may begin one unasked, one with sessions may not.
func (s Server) TaskState(request, m *wire.Message) (state []byte) {
	switch {
	case m.Kind != wire.Result:
		return nil
	case s.era == wire.Modern && m.R.ResultType == wire.ResultTask:
		state = m.Bytes(m.Result)
	case s.era == wire.Legacy && request.P.Task.Present():
		state = m.Bytes(m.R.Task)
	default:
		return nil
	}
	if id, _ := wire.Text(wire.Member(state, "taskId")); id == "" {
		return nil
	}
	return state
}

// TaskResult is the result in the state of a completed task; ok is false where the server
// tells it by tasks/result alone.
func (s Server) TaskResult(state []byte) (result []byte, ok bool) {
	if s.era != wire.Modern {
		return nil, false
	}
	return wire.Member(state, "result"), true
}
