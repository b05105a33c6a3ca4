package proxy

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// give answers with the upstream's answer.
func (c *call) give(m *wire.Message) wire.Pending {
	if told := c.outOfReach(m); told != nil {
		return c.answer(told)
	}
	if c.asksTooMuch(m) {
		return c.denyAsk(m)
	}
	if asked := c.visits(m); asked != nil {
		return c.answer(asked)
	}
	raw := c.given(m)
	if m.Kind == wire.Failure {
		return c.answerFailure(c.inEra(m.ErrorCode), raw)
	}
	return c.answer(raw)
}

// given is the upstream's answer as the client gets it: under its own id, in its
// own era, with what is to be added of the run's state. Nothing else is touched.
func (c *call) given(m *wire.Message) []byte {
	if m.Kind == wire.Failure {
		return c.failure(m)
	}
	annotate := c.annotates(m)
	if !annotate && !c.translates() || m.Raw[m.Result.Start] != '{' {
		return c.withID(m)
	}
	a := wire.Amend(m.Raw, m.Result)
	a.Add(wire.Edit{At: m.ID, With: c.id()})
	var names []string
	var values [][]byte
	if annotate {
		note := c.note()
		state, _ := json.Marshal(note)
		names, values = append(names, "fsm-proxy/state"), append(values, state)
		if c.s.hello.Load().annotate == AnnotateText && c.Kind == policy.Tool {
			a.Add(c.textEdit(m, note)...)
		}
	}
	if c.modern() && c.via != wire.Modern {
		a.Set(m.R.ResultTypeAt, "resultType", []byte(`"complete"`))
		if info := c.s.serverInfo(); info != nil {
			names, values = append(names, wire.MetaServerInfo), append(values, info)
		}
	}
	if c.modern() && c.Kind == policy.Resource && c.gated {
		c.freshness(m, a)
	}
	a.SetMeta(m.R.Meta, names, values)
	return a.Bytes()
}

// translates reports whether the result wants more for its client's era than the
// request's id.
func (c *call) translates() bool {
	return c.modern() && (c.via != wire.Modern || c.Kind == policy.Resource && c.gated)
}

// annotates reports whether something is added to a result of the run's state.
func (c *call) annotates(m *wire.Message) bool {
	return c.gated && !c.Snapshot.Shadow && !c.Snapshot.Runless && m.Kind == wire.Result && m.Raw[m.Result.Start] == '{' && !c.unfinished(m) &&
		c.s.hello.Load().annotate != AnnotateOff
}

// freshness says how long what was read may be kept: not at all where reading it
// moves the run, or where it is not to be read in every state.
func (c *call) freshness(m *wire.Message, a *wire.Amendment) {
	if m.R.TTL.Present() && m.R.CacheScope.Present() && c.Snapshot.InForce().Steady(policy.Resource, c.Name, c.Listed) {
		return
	}
	a.Set(m.R.TTL, "ttlMs", []byte("0"))
	a.Set(m.R.CacheScope, "cacheScope", []byte(`"private"`))
}

// failure is the upstream's error under the client's id, with the code that its era
// has for a resource that is not there (2026-07-28, "Error codes").
func (c *call) failure(m *wire.Message) []byte {
	a := wire.Amend(m.Raw, m.Error)
	a.Add(wire.Edit{At: m.ID, With: c.id()})
	if code := c.inEra(m.ErrorCode); code != m.ErrorCode {
		_ = wire.Members(m.Bytes(m.Error), func(name string, at wire.Span) error {
			if name == "code" {
				a.Set(wire.Span{Start: at.Start + m.Error.Start, End: at.End + m.Error.Start}, name, strconv.AppendInt(nil, int64(code), 10))
			}
			return nil
		})
	}
	return a.Bytes()
}

// inEra is an upstream's error code as the client's era has it.
func (c *call) inEra(code int) int {
	switch {
	case c.modern() && code == wire.CodeResourceNotFound:
		return wire.CodeInvalidParams
	case c.modern() && code == wire.CodeURLElicitation: // which this client cannot do
		return wire.CodeInternal
	case !c.modern() && c.via == wire.Modern && code == wire.CodeInvalidParams && c.Kind == policy.Resource && c.gated:
		return wire.CodeResourceNotFound
	}
	return code
}

// visits is a legacy upstream's error that asks the user to visit a URL (-32042) as
// the modern era asks for that; nil where it is none, or the client cannot. Nothing
// was done yet, and the client's next request is decided anew.
func (c *call) visits(m *wire.Message) []byte {
	if !c.modern() || m.Kind != wire.Failure || m.ErrorCode != wire.CodeURLElicitation ||
		!has(wire.Member(c.m.Bytes(c.m.P.Modern.Capabilities), "elicitation"), "url") {
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
	return wire.ResultAnswer(c.id(), result)
}

// answerFailure answers with an error, whose code decides the status where the
// client's era says so.
func (c *call) answerFailure(code int, raw []byte) wire.Pending {
	if out := c.failing(); out != nil {
		return c.answerWith(func(*call) { out.Fail(code, raw) }, raw)
	}
	return c.answer(raw)
}

// failing is the stream of a call on which an error's code decides the status, nil
// for one on which it does not.
func (c *call) failing() wire.FailingStream {
	if out, ok := c.out.(wire.FailingStream); ok && c.modern() {
		return out
	}
	return nil
}
