package bridge

import (
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
