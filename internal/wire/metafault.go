package wire

import (
	"slices"
	"strings"
)

// Fault is why a request is answered with an error before anybody looks at what
// it asks for.
type Fault struct {
	Code int
	Text string
	Data []byte // JSON; nil: none
}

// Spoken says which eras are spoken somewhere.
type Spoken struct{ Legacy, Modern bool }

// Revisions are those of the eras, newest first.
func (s Spoken) Revisions() (all []string) {
	if s.Legacy {
		all = LegacyRevisions()
	}
	if s.Modern {
		all = append(all, ModernRevision)
	}
	slices.Reverse(all)
	return all
}

// MetaFault is what is wrong with what a request of the modern era says of itself
// (2026-07-28, basic/index, "Per-request protocol fields"); nil: nothing. An unknown
// version comes before all that its revision may have otherwise.
func (s Spoken) MetaFault(m *Message) *Fault {
	p := m.P.Modern
	switch {
	case !m.SaysVersion():
		return &Fault{Code: CodeInvalidParams, Text: "params._meta must have the protocol's version as " + MetaVersion}
	case !s.Modern || p.Version != ModernRevision:
		return s.Unsupported(p.Version)
	case !p.Capabilities.Present() || m.Raw[p.Capabilities.Start] != '{':
		return &Fault{Code: CodeInvalidParams, Text: "params._meta must have the client's capabilities, an object, as " + MetaCapabilities}
	}
	return nil
}

// SaysVersion reports whether _meta has a protocol version, a string.
func (m *Message) SaysVersion() bool {
	p := m.P.Modern
	return p != nil && p.VersionAt.Present() && m.Raw[p.VersionAt.Start] == '"'
}

// maxShown is how much of a version that a client asks for is told again, in bytes.
const maxShown = 128

// Unsupported is the fault of a request in a revision that is not spoken
// (2026-07-28, basic/versioning).
func (s Spoken) Unsupported(requested string) *Fault {
	all := s.Revisions()
	data := AppendString([]byte(`{"supported":["`+strings.Join(all, `","`)+`"],"requested":`), requested[:min(len(requested), maxShown)])
	return &Fault{
		Code: CodeUnsupportedVersion,
		Text: "unsupported protocol version: spoken here are " + strings.Join(all, ", "),
		Data: append(data, '}'),
	}
}
