package upstream

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Suspect has a child asked whether it lives that has left a request unanswered: by
// ping, or in the modern era, which has none, by server/discover. If it says nothing
// for [Config.Ping], not to another request either, the connection ends, and the
// child with it. Suspect waits for nothing. To a server with a URL it does nothing.
func (c *Conn) Suspect() {
	p, child := c.link.(*process)
	if !child || c.srv.cfg.Ping == 0 || !c.suspected.CompareAndSwap(false, true) {
		return
	}
	c.own(func() {
		defer c.suspected.Store(false)
		p.probe(c.srv.cfg.Ping)
	})
}

// probe asks the child whether it lives, and ends the connection if it says nothing.
func (p *process) probe(patience time.Duration) {
	c, before := p.conn, p.heard.Load()
	ctx, stop := context.WithTimeout(c.ctx, patience)
	defer stop()
	answer, _ := c.Start(c.pingRequest(), nil).Wait(ctx)
	if answer == nil {
		<-ctx.Done() // it may have had no room for the question
	}
	switch {
	case c.ctx.Err() != nil:
	case answer != nil || p.heard.Load() != before:
		c.log().Info("the upstream process left a request unanswered, and lives: it goes on", "pid", p.cmd.Process.Pid)
	default:
		c.srv.stats.silent.Add(1)
		c.end(&silentError{patience})
	}
}

// silentError is a child that said nothing more.
type silentError struct{ lasted time.Duration }

// Error says for how long.
func (e *silentError) Error() string {
	return "the upstream process left a request unanswered and then said nothing for " + e.lasted.String() + " (--upstream-ping)"
}

// pingRequest is a request that every server answers at once.
func (c *Conn) pingRequest() *wire.Message {
	method := "ping"
	if c.Era() == wire.Modern {
		method = "server/discover"
	}
	m, err := wire.Read(wire.RequestMessage(0, method, c.listParams(nil)), wire.FromUpstream)
	if err != nil {
		panic(err) // nothing in it is anybody's but the connection's own, and was sent before
	}
	return m
}
