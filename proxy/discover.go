package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// spoken is how clients may speak.
func (p *Proxy) spoken() wire.Spoken {
	return bridge.Spoken(p.cfg.Protocol != ProtocolModern, p.cfg.Protocol != ProtocolLegacy)
}

// discover answers server/discover with what the upstream said of itself, less
// what is refused here.
func (c *call) discover() wire.Pending {
	h := c.s.hello.Load()
	m := h.from
	result := m.Bytes(m.Result)
	capabilities, instructions := []byte("{}"), ""
	_ = wire.Members(result, func(key string, at wire.Span) error {
		value := result[at.Start:at.End]
		switch key {
		case "capabilities":
			capabilities = c.client.Carried(value, c.s.policyNow().Passthrough)
		case "instructions":
			instructions, _ = wire.Text(value)
		}
		return nil
	})
	if c.s.p.handles != nil && !h.Lists[wire.Tools] && !c.Snapshot.Shadow {
		a := wire.Amend(capabilities, wire.Span{End: int32(len(capabilities))})
		a.Set(wire.Span{}, "tools", bridge.ListChanges(nil))
		capabilities = a.Bytes()
	}
	text := c.instructions(instructions, h)
	return c.result(c.client.Result(bridge.Discovered(c.s.p.spoken().Revisions(), capabilities, text), c.s.serverInfo(), c.s.freshList()))
}
