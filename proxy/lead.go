package proxy

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// leads reports whether clients that know both eras are to have sessions: else each of
// their calls would need a handle, which nothing but a model asks for.
func (p *Proxy) leads() bool { return p.cfg.Protocol == ProtocolAuto && p.handles != nil }

// lead refuses server/discover as a server with sessions does, upon which a client that
// knows them sends initialize (2026-07-28, basic/versioning, "Backward Compatibility").
// Nothing is asked of the upstream for it.
func (c *call) lead() wire.Pending {
	c.s.p.led.tell(c)
	fault := wire.Spoken{Legacy: true}.Unsupported(c.m.P.Modern.Version)
	text := "unsupported protocol version: begin a session with initialize, of revision 2024-11-05 to " + wire.LatestLegacy +
		"; for a client that knows " + wire.ModernRevision + " alone start fsm-proxy with --protocol both"
	c.blame(Fault{RPC: fault.Code})
	return c.answerFailure(fault.Code, wire.ErrorAnswer(c.id(), fault.Code, text, fault.Data))
}

// led are the names of the clients to which server/discover was refused.
type led struct {
	mu    sync.Mutex // guards what follows
	names map[string]struct{}
}

// maxLed bounds the names that are told of: who is asking chooses them.
const maxLed = 64

// tell logs the first such request of a client's name: if no session follows, the client
// may know no other revision.
func (l *led) tell(c *call) {
	name, _ := wire.Text(wire.Member(c.m.Bytes(c.m.P.Modern.ClientInfo), "name"))
	name = clip(name)
	l.mu.Lock()
	_, told := l.names[name]
	told = told || len(l.names) >= maxLed
	if l.names == nil {
		l.names = make(map[string]struct{})
	}
	if !told {
		l.names[name] = struct{}{}
	}
	l.mu.Unlock()
	if !told {
		c.s.log.Info("server/discover was refused, so that the client begins a session; one that knows revision "+wire.ModernRevision+
			" alone needs --protocol both", c.about("client", name)...)
	}
}
