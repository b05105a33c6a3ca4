package upstream

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Opening is what [Server.Dial] may open a connection with.
type Opening struct {
	// Initialize opens a connection of the legacy era, Discover (server/discover with
	// all of its _meta) one of the modern era. Nil: not of that era. The _meta of
	// Discover goes with the requests that the connection makes by itself.
	Initialize, Discover *wire.Message
	// Prefer is the era that is tried first where both can be.
	Prefer wire.Era
}

// has reports whether a connection of an era can be opened.
func (o Opening) has(era wire.Era) bool {
	if era == wire.Modern {
		return o.Discover != nil
	}
	return o.Initialize != nil
}

// other is the other one of the two eras.
func other(era wire.Era) wire.Era { return wire.Modern - era }

// known is what is known of whether a server speaks an era.
type known uint8

const (
	unknown known = iota
	speaks
	speaksNot
)

// first is the era that is tried first: the one that is to be spoken, else the
// preferred one, unless it is known that the server speaks the other one only.
func (s *Server) first(with Opening) wire.Era {
	if era, fixed := s.cfg.Protocol.fixed(); fixed && with.has(era) {
		return era
	}
	if !with.has(other(with.Prefer)) {
		return with.Prefer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !with.has(with.Prefer) || s.eras[with.Prefer] == speaksNot && s.eras[other(with.Prefer)] == speaks {
		return other(with.Prefer)
	}
	return with.Prefer
}

// learn keeps what was seen of a server for the connections to come. Nothing hangs
// on its being true for ever: the other era is tried where it no longer is.
func (s *Server) learn(era wire.Era, k known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eras[era] = k
}

func (s *Server) knows(era wire.Era) known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eras[era]
}

// Dial opens a connection, introduces the client and returns when that is answered:
// by initialize, or by server/discover. Which of them it is, the server decides:
// what with prefers is tried first, and the other where the server does not know it. A
// server that does not speak what [Config.Protocol] fixes is an [*EraError].
// Dial does not send notifications/initialized: that is the caller's. Messages that
// the upstream sends before its answer reach r, too.
//
// The error is a [*wire.CallError] with Sent false where there is no connection,
// also for some time after failed dials (200 ms, doubling to 5 s). RetryAfter
// says how long, where another attempt makes sense: after a program that could
// not start, or a refusal, none does. The other error is an [*InitializeError] where the upstream
// refused.
func (s *Server) Dial(ctx context.Context, with Opening, r wire.Receiver) (*Conn, error) {
	if s.cfg.SSE && with.Initialize != nil {
		with.Discover = nil // of that transport there is no modern era
	}
	c, err := s.dial(ctx, with, r)
	if err != errDiedAsked {
		return c, err
	}
	<-c.gone // so that there is room for the next
	s.learn(wire.Modern, speaksNot)
	return s.dial(ctx, Opening{Initialize: with.Initialize}, r)
}

// Era is the connection's, in which all messages given to [Conn.Start] must be.
func (c *Conn) Era() wire.Era { return wire.Era(c.era.Load()) }
