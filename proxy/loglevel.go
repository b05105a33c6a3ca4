package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// levelTimeout bounds how long a call waits for the upstream to take its log level.
const levelTimeout = 5 * time.Second

// levelled has a stateless request go its way once an upstream with sessions logs
// at the level that the request asks for. A run's session raises its connection's level and
// never lowers it: what a request has not asked for is kept from it.
func (c *call) levelled() wire.Pending {
	if bridge.LogLevel(c.m) == "" || !c.s.hello.Load().Logs || !c.s.raise(bridge.LogLevel(c.m)) {
		return c.routed()
	}
	return c.later(func() {
		c.tellLevel()
		wait(c.routed())
	})
}

// raise notes a level as the session's, and reports whether it is more verbose than
// what it was. One that is no level is none.
func (s *session) raise(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(levels, level)
	if at < 0 || s.level != nil && slices.Index(levels, s.level.P.Level) <= at {
		return false
	}
	s.level = wire.Made(wire.RequestMessage(0, "logging/setLevel", wire.Object([]string{"level"}, [][]byte{wire.AppendString(nil, level)})))
	return true
}

// tellLevel sets the session's level upstream, where another session over the same
// connection has not set it already. That it fails keeps no call from being made.
func (c *call) tellLevel() {
	c.s.mu.Lock()
	level := c.s.level
	c.s.mu.Unlock()
	if shared := c.s.p.shared; shared != nil && shared.moreVerbose(c.s, level.P.Level) {
		return
	}
	over := c.waiting()
	defer over()
	conn, err := c.s.link.Get()
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), levelTimeout)
	defer stop()
	if _, err := conn.Start(level, nil).Wait(ctx); err != nil {
		c.s.log.Warn("setting the upstream's log level: its messages may be missing; the next connection is asked again", "error", err)
	}
}

// logged gives a log message of the upstream to who has asked for it.
func (s *session) logged(m *wire.Message, c *call) {
	if c == nil && s.ofRun && !s.run.aside {
		c = s.asking()
	}
	if c.wantsLog(m.P.Level) && (s.p.shared == nil || s.wantsLog(m.P.Level)) {
		s.send(m.Raw, c)
	}
}
