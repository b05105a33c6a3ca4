package upstream

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Suspect finds out whether a child that has left a request unanswered still answers
// anything: it sends a ping, or in the modern era, which has none, server/discover. If the
// child writes nothing at all for [Config.Ping], the connection ends, and the child with
// it. Suspect does not wait for that. For a server with a URL it does nothing.
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

// probe pings the child, and ends the connection if it writes nothing for so long.
func (p *process) probe(patience time.Duration) {
	c, before := p.conn, p.lines.Load()
	ctx, stop := context.WithTimeout(c.ctx, patience)
	defer stop()
	answer, _ := c.Start(c.pingRequest(), nil).Wait(ctx)
	if answer == nil {
		<-ctx.Done() // a child that could not even take the ping has the whole time, too
	}
	switch {
	case c.ctx.Err() != nil:
	case answer != nil || p.lines.Load() != before:
		c.log().Info("the upstream process left a request unanswered, and lives: it goes on", "pid", p.cmd.Process.Pid)
	default:
		c.srv.stats.silent.Add(1)
		c.end(&silentError{patience})
	}
}

// silentError is the error of a child that was pinged and wrote nothing.
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
		panic(err) // it holds nothing but the connection's own parameters, which were sent before
	}
	return m
}
