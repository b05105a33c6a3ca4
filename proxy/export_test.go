package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// GiveUpBehind gives up the only call under way just behind do, before that goes on with
// what do has set off.
func (p *Proxy) GiveUpBehind(do func()) {
	p.underWay()[0].Update(func(s *flight.State) {
		do()
		s.Params, s.GaveUp = []byte("{}"), refusal.ErrGivenUp // all that expire does by then
	})
}

// ArgumentsOf returns the arguments of a request as a decision reads them.
func ArgumentsOf(m *wire.Message) run.Arguments { return (*arguments)(m) }
