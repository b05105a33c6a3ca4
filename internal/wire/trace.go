package wire

import (
	"bytes"
	"math"
)

// TraceContext is the place of a request in a trace, as W3C Trace Context has it
// in HTTP headers and MCP in params._meta.
type TraceContext struct {
	Parent string // traceparent; "": there is none
	State  string // tracestate
}

const (
	keyTraceParent = "traceparent"
	keyTraceState  = "tracestate"
)

// Trace returns the trace context in a request's _meta, unchecked.
func (m *Message) Trace() (t TraceContext) {
	meta := m.Bytes(m.P.Meta)
	t.Parent, _ = Text(Member(meta, keyTraceParent))
	t.State, _ = Text(Member(meta, keyTraceState))
	return t
}

// WithTrace returns the request with this trace context in its _meta, in place of
// the one there. Where params or _meta are missing they are made; a _meta that is
// no object stays as it is, and the message with it.
func (m *Message) WithTrace(t TraceContext) *Message {
	meta := m.P.Meta
	if meta.Present() && m.Raw[meta.Start] != '{' {
		return m
	}
	var names []string
	var values [][]byte
	for _, member := range [][2]string{{keyTraceParent, t.Parent}, {keyTraceState, t.State}} {
		if member[1] != "" || Member(m.Bytes(meta), member[0]) != nil {
			names, values = append(names, member[0]), append(values, AppendString(nil, member[1]))
		}
	}
	var raw []byte
	if m.Params.Present() {
		edited := Amend(m.Raw, m.Params)
		edited.SetMeta(meta, names, values)
		raw = edited.Bytes()
	} else {
		end := int32(bytes.LastIndexByte(m.Raw, '}'))
		raw = Splice(m.Raw, Edit{At: Span{end, end}, With: []byte(`,"params":{"_meta":` + string(Object(names, values)) + `}`)})
	}
	traced, err := Limits{Depth: math.MaxInt32}.Read(raw, FromClient)
	if err != nil {
		return m // a message that was read is not made unreadable
	}
	return traced
}
