package proxy

import (
	"encoding/json/v2"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// spoken are the eras that clients may speak.
func (p *Proxy) spoken() wire.Spoken {
	return wire.Spoken{Legacy: p.cfg.Protocol != ProtocolModern, Modern: p.cfg.Protocol != ProtocolLegacy}
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
			capabilities = carried(value, c.era, c.s.policyNow())
		case "instructions":
			instructions, _ = wire.Text(value)
		}
		return nil
	})
	if c.s.p.handles != nil && !h.lists[wire.Tools] && !c.Snapshot.Shadow {
		capabilities = withTools(capabilities)
	}
	versions, _ := json.Marshal(c.s.p.spoken().Revisions())
	names := []string{"supportedVersions", "capabilities"}
	values := [][]byte{versions, capabilities}
	if text := c.instructions(instructions, h); text != "" {
		names, values = append(names, "instructions"), append(values, wire.AppendString(nil, text))
	}
	return c.result(c.s.modernResult(wire.Object(names, values), c.s.freshList()))
}

// asInitialize is a modern upstream's answer to server/discover as the answer to
// a client's initialize.
func (c *call) asInitialize(m *wire.Message) *wire.Message {
	version := wire.LatestLegacy
	if asked := c.m.P.ProtocolVersion; wire.IsLegacyRevision(asked) {
		version = asked
	}
	names := []string{"protocolVersion"}
	values := [][]byte{wire.AppendString(nil, version)}
	result := m.Bytes(m.Result)
	info := m.ServerInfo()
	_ = wire.Members(result, func(key string, at wire.Span) error {
		switch key {
		case "capabilities", "instructions":
			names, values = append(names, key), append(values, result[at.Start:at.End])
		}
		return nil
	})
	if info == nil {
		info = []byte(`{"name":"unknown","version":""}`)
	}
	names, values = append(names, "serverInfo"), append(values, info)
	return made(wire.ResultAnswer(c.id(), wire.Object(names, values)))
}
