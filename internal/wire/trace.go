package wire

import (
	"bytes"
	"math"
	"slices"
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
	_ = m.eachMeta(func(name string, at Span) {
		switch name {
		case keyTraceParent:
			t.Parent, _ = Text(m.Raw[at.Start:at.End])
		case keyTraceState:
			t.State, _ = Text(m.Raw[at.Start:at.End])
		}
	})
	return t
}

// WithTrace returns the request with this trace context in its _meta, in place of
// the one there. Where params or _meta are missing they are made; a _meta that is
// no object stays as it is, and the message with it.
func (m *Message) WithTrace(t TraceContext) *Message {
	edits := m.traceEdits(t)
	if len(edits) == 0 {
		return m
	}
	traced, err := Limits{Depth: math.MaxInt32}.Read(Splice(m.Raw, edits...), FromClient)
	if err != nil {
		return m // a message that was read is not made unreadable
	}
	return traced
}

func (m *Message) traceEdits(t TraceContext) []Edit {
	switch {
	case m.P.Meta.Present() && m.Raw[m.P.Meta.Start] == '{':
		return m.traceInMeta(t)
	case m.P.Meta.Present():
		return nil
	case m.Params.Present():
		return []Edit{m.prepend(m.Params, `"_meta":{`+t.members()+`}`)}
	}
	end := int32(bytes.LastIndexByte(m.Raw, '}'))
	return []Edit{{At: Span{end, end}, With: []byte(`,"params":{"_meta":{` + t.members() + `}}`)}}
}

// traceInMeta replaces the members that are there, and puts the others in front.
func (m *Message) traceInMeta(t TraceContext) (edits []Edit) {
	missing := t
	_ = m.eachMeta(func(name string, at Span) {
		switch name {
		case keyTraceParent:
			edits, missing.Parent = append(edits, Edit{At: at, With: AppendString(nil, t.Parent)}), ""
		case keyTraceState:
			edits, missing.State = append(edits, Edit{At: at, With: AppendString(nil, t.State)}), ""
		}
	})
	if missing != (TraceContext{}) {
		edits = slices.Insert(edits, 0, m.prepend(m.P.Meta, missing.members()))
	}
	return edits
}

// prepend puts members in front of those of the object at a span.
func (m *Message) prepend(object Span, members string) Edit {
	at := object.Start + 1
	if rest := bytes.TrimLeft(m.Raw[at:], " \t\r\n"); rest[0] != '}' {
		members += ","
	}
	return Edit{At: Span{at, at}, With: []byte(members)}
}

func (t TraceContext) members() string {
	var out []byte
	if t.Parent != "" {
		out = AppendString(append(out, `"`+keyTraceParent+`":`...), t.Parent)
	}
	if t.State != "" {
		if out != nil {
			out = append(out, ',')
		}
		out = AppendString(append(out, `"`+keyTraceState+`":`...), t.State)
	}
	return string(out)
}

// eachMeta calls f for each member of _meta, with where its value stands in Raw.
func (m *Message) eachMeta(f func(name string, at Span)) error {
	meta := m.Bytes(m.P.Meta)
	if meta == nil {
		return nil
	}
	return Members(meta, func(name string, at Span) error {
		f(name, Span{at.Start + m.P.Meta.Start, at.End + m.P.Meta.Start})
		return nil
	})
}
