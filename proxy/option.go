package proxy

import (
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

var (
	protocols = []string{"auto", "both", "legacy", "modern"}
)

// String is the word of the command line.
func (p Protocol) String() string { return protocols[p] }

// UnmarshalText reads the word of the command line.
func (p *Protocol) UnmarshalText(text []byte) error { return words.Read(p, text, protocols) }

// MarshalText returns the word of the command line.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Mode is whether the policy is enforced. The zero value enforces it.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota
	// Shadow filters, refuses, queues and notifies nothing: clients see what they
	// would see on a direct connection. What would have been refused is logged and
	// counted, and steps no run; what would have been allowed steps it as ever.
	Shadow
)

var modes = []string{"enforce", "shadow"}

// String is the word of the command line.
func (m Mode) String() string { return modes[m] }

// UnmarshalText reads the word of the command line.
func (m *Mode) UnmarshalText(text []byte) error { return words.Read(m, text, modes) }

// MarshalText returns the word of the command line.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
