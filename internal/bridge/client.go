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
