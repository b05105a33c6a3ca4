package proxy

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// refusesDiscover reports whether server/discover is refused, so that clients that know
// both ways have sessions: else each of their calls would need a handle, which nothing
// but a model asks for.
func (p *Proxy) refusesDiscover() bool { return p.cfg.Protocol == ProtocolAuto && p.handles != nil }

// refuseDiscover refuses server/discover as a server with sessions does, upon which a client that
// knows them sends initialize (2026-07-28, basic/versioning, "Backward Compatibility").
// Nothing is asked of the upstream for it.
func (c *call) refuseDiscover() wire.Pending {
	c.s.p.undiscovered.log(c)
	fault := bridge.SessionsOnly(c.m)
	c.seen.Failed(observe.Fault{RPC: fault.Code})
	return c.answerFailure(fault.Code, wire.ErrorAnswer(c.id(), fault.Code, fault.Text, fault.Data))
}

// undiscovered are the names of the clients to which server/discover was refused.
type undiscovered struct {
	mu    sync.Mutex // guards what follows
	names map[string]struct{}
}

// maxUndiscovered bounds the names that are kept and logged: clients choose them.
const maxUndiscovered = 64

// log logs the first such request of a client's name: if no session follows, the client
// may know no other revision.
func (u *undiscovered) log(c *call) {
	name, _ := wire.Text(wire.Member(bridge.IntroductionIn(c.m).Info, "name"))
	name = wire.Clip(name)
	u.mu.Lock()
	_, logged := u.names[name]
	logged = logged || len(u.names) >= maxUndiscovered
	if u.names == nil {
		u.names = make(map[string]struct{})
	}
	if !logged {
		u.names[name] = struct{}{}
	}
	u.mu.Unlock()
	if !logged {
		c.s.log.Info("server/discover was refused, so that the client begins a session; one that knows revision "+bridge.Revision+
			" alone needs --protocol both", c.about("client", name)...)
	}
}
