package proxy

import (
	"crypto/sha256"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// paramHeaders are the arguments that the tools of a list want repeated in
// headers. It is safe for concurrent use.
type paramHeaders struct {
	mu     sync.Mutex // guards what follows
	byList map[[sha256.Size]byte]map[string][]wire.ParamHeader
}

// maxParamLists bounds the lists that are remembered; beyond it all are forgotten.
const maxParamLists = 64

// of are those of one tool; nil, as with most tools: none.
func (p *paramHeaders) of(l *wire.List, tool string) []wire.ParamHeader {
	p.mu.Lock()
	defer p.mu.Unlock()
	tools, there := p.byList[l.Digest]
	if !there {
		if p.byList == nil || len(p.byList) >= maxParamLists {
			p.byList = make(map[[sha256.Size]byte]map[string][]wire.ParamHeader)
		}
		tools = paramHeadersIn(l)
		p.byList[l.Digest] = tools
	}
	return tools[tool]
}

func paramHeadersIn(l *wire.List) map[string][]wire.ParamHeader {
	tools := make(map[string][]wire.ParamHeader)
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
	if !c.modern() || c.kind != policy.Tool || c.m.Method != "tools/call" {
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
	headers := c.s.p.params.of(c.offer, c.name)
	if headers == nil {
		return ""
	}
	return wire.ParamFault(headers, c.m.Bytes(c.m.P.Arguments), out.Headers)
}
