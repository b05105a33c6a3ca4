package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// GiveUpBehind gives up the only call under way just behind f, before that goes on with
// what f has set off.
func (p *Proxy) GiveUpBehind(f func()) {
	c := p.underWay()[0]
	c.flight.Update(func(s *flight.State) {
		f()
		s.Params, s.GaveUp = []byte("{}"), refusal.ErrGivenUp // all that expire does by then
	})
}

// ArgumentsOf returns the arguments of a request as a decision reads them.
func ArgumentsOf(m *wire.Message) run.Arguments { return (*arguments)(m) }
