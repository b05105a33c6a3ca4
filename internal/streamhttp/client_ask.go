package streamhttp

import (
	"context"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Field is one line of a request's header. Name is in its canonical form.
type Field struct{ Name, Value string }

// Ask is [Client.Post] in the modern era (2026-07-28): the request stands alone,
// and so there is no session, nothing to wait for, and no stream is resumed.
// fields repeat in the header what the body says: [MirrorFields] makes them.
// Besides the end of ctx, that of life closes the request's stream, by which the
// server is told that it is cancelled.
func (c *Client) Ask(ctx context.Context, life *wire.Life, body []byte, fields []Field, sink Sink) error {
	return c.exchange(ctx, &exchange{Client: c, sink: sink, life: life, era: wire.Modern, fields: fields}, body, false)
}

// MirrorFields are the fields that repeat a request's method, and its name where it
// has one.
func MirrorFields(m *wire.Message) []Field {
	fields := append(make([]Field, 0, 2), Field{wire.HeaderMethod, wire.EncodeHeader(m.Method)})
	if name, named := m.Named(); named {
		fields = append(fields, Field{wire.HeaderName, wire.EncodeHeader(name)})
	}
	return fields
}

// withFields is a header with more lines in it.
func withFields(h http.Header, fields []Field) http.Header {
	if len(fields) == 0 {
		return h
	}
	h = h.Clone()
	for _, f := range fields {
		h[f.Name] = []string{f.Value}
	}
	return h
}
