package proxy

import (
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// modern reports whether the client speaks the modern era in this request.
func (c *call) modern() bool { return c.era == wire.Modern }

// translated is the request as an upstream of an era reads it. What is of its era
// already stays as it is, but for what is the proxy's alone to read.
func (c *call) translated(via wire.Era, m *wire.Message) *wire.Message {
	c.via = via
	switch {
	case c.modern() && via == wire.Legacy:
		return reread(withoutModern(m), m)
	case c.modern():
		return c.limited(m)
	case !c.modern() && via == wire.Modern:
		return reread(c.s.withMeta(m), m)
	}
	return m
}

// reread reads a request that was edited; m is what it was before.
func reread(raw []byte, m *wire.Message) *wire.Message {
	again, err := wire.Read(raw, wire.FromUpstream)
	if err != nil { // it was read before, and the edits are values of their own
		return m
	}
	return again
}

// limited is a modern request without the proxy's own handle, without what the
// policy does not let the upstream ask of the client, and, where it has no run, without
// the extension of tasks: one of them would be anybody's who has its id.
func (c *call) limited(m *wire.Message) *wire.Message {
	may := c.s.run.where().UpstreamMay()
	all := may.Sampling && may.Elicitation && may.Roots
	capabilities := m.P.Modern.Capabilities
	tasks := c.runless() && !c.s.run.shadow.Load() && wire.Member(wire.Member(m.Bytes(capabilities), "extensions"), tasksExtension) != nil
	if all && !tasks && !m.P.Modern.RunAt.Present() {
		return m
	}
	a := wire.Amend(m.Raw, m.P.Meta)
	a.Add(wire.Without(m.Raw, m.P.Meta, func(name string) bool { return name == wire.MetaRun })...)
	if tasks {
		_ = wire.Members(m.Bytes(capabilities), func(name string, at wire.Span) error {
			if name == "extensions" {
				extensions := wire.Span{Start: capabilities.Start + at.Start, End: capabilities.Start + at.End}
				a.Add(wire.Without(m.Raw, extensions, func(name string) bool { return name == tasksExtension })...)
			}
			return nil
		})
	}
	if !all {
		a.Add(wire.Without(m.Raw, capabilities, func(name string) bool {
			return slices.Contains(askables[:], name) && !permits(may, name)
		})...)
	}
	return reread(a.Bytes(), m)
}

// withoutModern is a request without what the modern era has in it: a server of
// both eras would take it for a modern one.
func withoutModern(m *wire.Message) []byte {
	a := wire.Amend(m.Raw, m.Params)
	a.Add(wire.Without(m.Raw, m.P.Meta, func(name string) bool {
		switch name {
		case wire.MetaVersion, wire.MetaCapabilities, wire.MetaClientInfo, wire.MetaLogLevel, wire.MetaRun:
			return true
		}
		return false
	})...)
	if m.P.InputResponses.Present() || m.P.RequestStateAt.Present() {
		a.Add(wire.Without(m.Raw, m.Params, func(name string) bool { return name == "inputResponses" || name == "requestState" })...)
	}
	return a.Bytes()
}

// withMeta is a legacy request with what a modern upstream needs to know of its
// client: what initialize said.
func (s *session) withMeta(m *wire.Message) []byte {
	names, values := s.introduction()
	if !m.Params.Present() {
		params := append([]byte(`,"params":{"_meta":`), wire.Object(names, values)...)
		end := int32(len(m.Raw))
		for m.Raw[end-1] != '}' {
			end--
		}
		end--
		return wire.Splice(m.Raw, wire.Edit{At: wire.Span{Start: end, End: end}, With: append(params, '}')})
	}
	a := wire.Amend(m.Raw, m.Params)
	a.SetMeta(m.P.Meta, names, values)
	return a.Bytes()
}

// introducing are the members of _meta by which a client is introduced to a modern
// upstream; info is nil for one that does not say its name.
func introducing(capabilities, info []byte) (names []string, values [][]byte) {
	names = append(make([]string, 0, 4), wire.MetaVersion, wire.MetaCapabilities)
	values = append(make([][]byte, 0, 4), []byte(`"`+wire.ModernRevision+`"`), capabilities)
	if info != nil {
		names, values = append(names, wire.MetaClientInfo), append(values, info)
	}
	return names, values
}

// introduction introduces a legacy client so.
func (s *session) introduction() (names []string, values [][]byte) {
	h := s.hello.Load()
	if h == nil {
		return introducing([]byte("{}"), nil)
	}
	capabilities := h.capabilities
	if capabilities == nil {
		capabilities = []byte("{}")
	}
	names, values = introducing(capabilities, h.clientInfo)
	s.mu.Lock()
	level := s.level
	s.mu.Unlock()
	if level != nil {
		names, values = append(names, wire.MetaLogLevel), append(values, wire.AppendString(nil, level.P.Level))
	}
	return names, values
}
