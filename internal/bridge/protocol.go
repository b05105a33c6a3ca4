package bridge

import (
	"maps"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/internal/words"
)

// Protocol is how clients can speak MCP. The zero value is with sessions and without, told apart by
// each request.
type Protocol uint8

// The protocols.
const (
	// ProtocolAuto is both. Where stateless requests find their run by handle, server/discover is
	// refused, so that clients that know both have sessions.
	ProtocolAuto   Protocol = iota
	ProtocolBoth            // both, server/discover answered in full
	ProtocolLegacy          // sessions: 2024-11-05 to 2025-11-25
	ProtocolModern          // 2026-07-28
)

var protocols = []string{"auto", "both", "legacy", "modern"}

// String is the word of the command line.
func (p Protocol) String() string { return protocols[p] }

// UnmarshalText reads the word of the command line.
func (p *Protocol) UnmarshalText(text []byte) error { return words.Read(p, text, protocols) }

// MarshalText returns the word of the command line.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Sessions reports whether clients may have sessions.
func (p Protocol) Sessions() bool { return p != ProtocolModern }

// Stateless reports whether clients may do without a session.
func (p Protocol) Stateless() bool { return p != ProtocolLegacy }

// Spoken says how clients may speak.
func (p Protocol) Spoken() wire.Spoken {
	return wire.Spoken{Legacy: p.Sessions(), Modern: p.Stateless()}
}

// Pipe is the one client on a stdio connection: a session, and requests that stand alone.
// It is safe for concurrent use.
type Pipe struct {
	Piped

	mu    sync.Mutex // guards what follows
	alone map[string]Canceller
}

// Piped is the session of a client on a pipe, which takes requests that stand alone as well.
type Piped interface {
	wire.WitnessSession
	// Protocol is what the client may speak.
	Protocol() Protocol
	// ServeAlone takes a request that stands alone, as Handle does. It enters what it makes of it.
	ServeAlone(on *Pipe, m *wire.Message, out wire.Stream) wire.Pending
}

// Canceller is a request under way.
type Canceller interface {
	// Cancel cancels it, as notifications/cancelled with these params asks for.
	Cancel(params []byte)
}

// Handle implements wire.Session.
func (p *Pipe) Handle(m *wire.Message, out wire.Stream) wire.Pending {
	switch {
	case m.Kind == wire.Request && SpokenIn(m).Stateless() && p.Protocol().Stateless():
		return p.ServeAlone(p, m, out)
	case m.Method == "notifications/cancelled" && p.cancel(m):
		return nil
	case m.Kind == wire.Request && m.Method == "initialize" && !p.Protocol().Sessions():
		text := "this server speaks revision " + Revision + " of the protocol alone, which has no initialize"
		out.Answer(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, text, nil))
		return nil
	}
	return p.Piped.Handle(m, out)
}

// Enter takes a request for one under way until Forget is called, and reports whether there
// is none under its id.
func (p *Pipe) Enter(id string, c Canceller) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone[id] != nil {
		return false
	}
	if p.alone == nil {
		p.alone = make(map[string]Canceller)
	}
	p.alone[id] = c
	return true
}

// Forget takes a request out of those under way.
func (p *Pipe) Forget(id string, c Canceller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone[id] == c {
		delete(p.alone, id)
	}
}

// cancel cancels a request that stands alone, and reports whether there is one under the id.
func (p *Pipe) cancel(m *wire.Message) bool {
	p.mu.Lock()
	c := p.alone[wire.Key(m.Bytes(m.P.RequestID))]
	p.mu.Unlock()
	if c != nil {
		c.Cancel(m.Bytes(m.Params))
	}
	return c != nil
}

// Close implements wire.Session: what the client still waits for is cancelled.
func (p *Pipe) Close() {
	p.mu.Lock()
	alone := slices.Collect(maps.Values(p.alone))
	p.mu.Unlock()
	for _, c := range alone {
		c.Cancel(nil)
	}
	p.Piped.Close()
}
