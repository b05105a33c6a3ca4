package upstream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Protocol is the era that is spoken with a server. The zero value leaves it to the
// client and the server.
type Protocol uint8

// The protocols.
const (
	ProtocolAuto   Protocol = iota // the client's era, or the other where the server does not speak that
	ProtocolLegacy                 // sessions: 2024-11-05 to 2025-11-25
	ProtocolModern                 // 2026-07-28
)

var protocols = []string{"auto", "legacy", "modern"}

// String is the word of the command line.
func (p Protocol) String() string { return protocols[p] }

// MarshalText returns the word of the command line.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the word of the command line.
func (p *Protocol) UnmarshalText(text []byte) error {
	i := slices.Index(protocols, string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", text, strings.Join(protocols, ", "))
	}
	*p = Protocol(i)
	return nil
}

// fixed is the only era that may be spoken; false: there is none.
func (p Protocol) fixed() (era wire.Era, ok bool) {
	if p == ProtocolModern {
		era = wire.Modern
	}
	return era, p != ProtocolAuto
}

// opening is the request whose answer is waited for until [Config.DialTimeout]. Where
// server/discover is tried before initialize, it is given up earlier.
func (p Protocol) opening() string {
	if p == ProtocolModern {
		return "server/discover"
	}
	return "initialize"
}

// EraError is the error of a server that does not speak the era which [Config.Protocol] fixes, but
// the other one.
type EraError struct {
	Speaks   string // the revision, as the server says it
	Protocol Protocol
}

// Error says what the server speaks and what to do.
func (e *EraError) Error() string {
	if e.Protocol == ProtocolModern {
		return fmt.Sprintf("the server speaks revision %.32q, with sessions, and not %s: leave --upstream-protocol modern out", e.Speaks, wire.ModernRevision)
	}
	return fmt.Sprintf("the server speaks revision %.32q, and none with sessions: leave --upstream-protocol legacy out", e.Speaks)
}

// checkEra returns an [*EraError] where the connection is in another era than the one that
// [Config.Protocol] fixes: its server does not speak that.
func (c *Conn) checkEra() error {
	era, fixed := c.srv.cfg.Protocol.fixed()
	if !fixed || c.Era() == era {
		return nil
	}
	e := &EraError{Speaks: wire.ModernRevision, Protocol: c.srv.cfg.Protocol}
	if c.Era() == wire.Legacy {
		said, _ := readHello(c.hello.Bytes(c.hello.Result)) // it was read before
		e.Speaks = said.version
	}
	return e
}

// TimeoutError is the error of a connection that was given up since its opening was not
// answered.
type TimeoutError struct {
	// Asked is the request, initialize or server/discover; Waited is how long its
	// answer was waited for.
	Asked  string
	Waited time.Duration
	// Process is whether a child ran until then, and was ended.
	Process bool
	// Said is what that said last; "": nothing, or not for clients.
	Said string
}

// Error says how long it was, and what became of the child.
func (e *TimeoutError) Error() string {
	text := "no answer to " + e.Asked + " in " + e.Waited.String()
	if e.Asked == ProtocolModern.opening() {
		text += ", which a server with sessions may leave unanswered: if it is one, leave --upstream-protocol modern out"
	}
	if e.Process {
		text += "; its process still ran, and was ended (--connect-timeout)"
	}
	if e.Said != "" {
		text += "; it said: " + e.Said
	}
	return text
}

// unanswered is the error of an opening that was not answered.
func (c *Conn) unanswered(waited time.Duration) error {
	e := &TimeoutError{Asked: c.srv.cfg.Protocol.opening(), Waited: waited.Round(time.Millisecond)}
	if waited > time.Second {
		e.Waited = waited.Round(time.Second)
	}
	if p, ok := c.link.(*stdioLink); ok && c.Err() == nil {
		e.Process, e.Said = true, p.quote()
	}
	return e
}
