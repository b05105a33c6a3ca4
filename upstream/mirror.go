package upstream

import (
	"context"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp/client"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// alone is what a request needs that stands alone: one of the modern era over HTTP.
type alone struct {
	life    wire.Life // of its stream: when it ends, the request is cancelled
	message *wire.Message
	// mismatch is the answer that the headers do not repeat the body, until it is
	// known that no others will. Guarded by nothing: the request's own goroutine has it.
	mismatch *wire.Message
	again    bool // it was sent with other headers before
}

// mirrors are the arguments that calls of tools repeat in headers, by the tool's
// name. Most tools have none and are not in it.
type mirrors map[string][]wire.ParamHeader

// mirrored notes what the tools of a list want repeated, and leaves out those that
// no client may offer over HTTP (2026-07-28, basic/transports/streamable-http,
// "Custom Headers from Tool Parameters").
func (c *Conn) mirrored(l *wire.List) *wire.List {
	all := make(mirrors)
	l = l.Keep(func(tool wire.Item) bool {
		headers, err := wire.ParamHeaders(inputSchema(tool.Raw))
		if err != nil {
			c.log().Warn("a tool of the upstream is left out", "tool", clipped(tool.Name), "error", err)
			return false
		}
		if headers != nil {
			all[tool.Name] = headers
		}
		return true
	})
	c.mirrors.Store(&all)
	return l
}

// clipped is a name for the log.
func clipped(name string) string {
	const most = 128
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}

// inputSchema is that of a tool, nil where it has none.
func inputSchema(tool []byte) (schema []byte) {
	_ = wire.Members(tool, func(name string, at wire.Span) error {
		if name == "inputSchema" {
			schema = tool[at.Start:at.End]
			return errFound
		}
		return nil
	})
	return schema
}

// fields are the headers of a request that stands alone. Those of a tool's arguments
// are known from the list of tools, which is read where it never was.
func (l *httpLink) fields(ctx context.Context, m *wire.Message) []http1.Field {
	fields := client.MirrorFields(m)
	if m.Method != "tools/call" {
		return fields
	}
	if l.conn.mirrors.Load() == nil {
		_, _ = l.conn.List(ctx, wire.Tools) // what comes of it, the call itself will show
		l.conn.mirrors.CompareAndSwap(nil, new(mirrors))
	}
	headers := (*l.conn.mirrors.Load())[m.P.Name]
	for i := range headers {
		if value, ok := headers[i].Value(m.Bytes(m.P.Arguments)); ok {
			fields = append(fields, http1.Field{Name: headers[i].Name, Value: value})
		}
	}
	return fields
}

// ask sends a request that stands alone. One that is refused since its headers do
// not repeat the body is sent once more if the list of tools now asks for others.
func (l *httpLink) ask(ctx context.Context, k *call) error {
	a := k.alone
	fields := l.fields(ctx, a.message)
	err := l.client.Ask(ctx, &a.life, k.raw, fields, k)
	if a.mismatch == nil {
		return err
	}
	l.conn.lists[wire.Tools].drop()
	_, _ = l.conn.List(ctx, wire.Tools)
	others := l.fields(ctx, a.message)
	if slices.Equal(fields, others) {
		k.finish(outcome{m: a.mismatch})
		return nil
	}
	a.mismatch, a.again = nil, true
	return l.client.Ask(ctx, &a.life, k.raw, others, k)
}

// mismatched keeps the refusal of a call whose headers may be outdated, and reports
// whether that is what it is.
func (k *call) mismatched(m *wire.Message) bool {
	if k.alone == nil || k.alone.again || m.ErrorCode != wire.CodeHeaderMismatch || k.alone.message.Method != "tools/call" {
		return false
	}
	k.alone.mismatch = k.addressed(m)
	return true
}
