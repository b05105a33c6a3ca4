package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// paramHeaders are the arguments that the tools of a list want repeated in headers,
// by the tool's name. Most tools have none and are not in it.
type paramHeaders map[string][]wire.ParamHeader

func paramHeadersIn(l *wire.List) paramHeaders {
	tools := make(paramHeaders)
	for _, item := range l.Items {
		if headers, err := wire.ParamHeaders(member(l, item.Name, "inputSchema")); err == nil && len(headers) > 0 {
			tools[item.Name] = headers
		}
	}
	return tools
}

// headed is the stream of a call of a tool whose headers are to say what its
// arguments do; nil: none is.
func (c *call) headed() wire.HeadedStream {
	if !c.modern() || c.Kind != policy.Tool || c.m.Method != "tools/call" {
		return nil
	}
	out, _ := c.out.(wire.HeadedStream)
	return out
}

// headerFault says in what a call's headers and its arguments differ; empty: in
// nothing.
func (c *call) headerFault() string {
	out := c.headed()
	if out == nil || c.offer == nil {
		return ""
	}
	headers := c.s.p.params.of(c.offer)[c.Name]
	if headers == nil {
		return ""
	}
	return wire.ParamFault(headers, c.m.Bytes(c.m.P.Arguments), out.Headers)
}
