package streamhttp

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// modernFault is why a message of the modern era is answered here.
type modernFault struct {
	code int
	text string
	data []byte
}

// answer answers what nobody else sees: whatever its code, it is a bad request.
func (f *modernFault) answer(w http.ResponseWriter, m *wire.Message, timeout time.Duration) {
	status := statusOf(f.code)
	if status == http.StatusOK {
		status = http.StatusBadRequest
	}
	writeAnswer(w, status, wire.ErrorAnswer(m.Bytes(m.ID), f.code, f.text, f.data), timeout)
}

// statusOf is the HTTP status of an answer with an error's code (2026-07-28,
// basic/transports/streamable-http, and schema).
func statusOf(code int) int {
	switch code {
	case wire.CodeMethodNotFound:
		return http.StatusNotFound
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// legacyOnly are the requests that the modern era has no more.
var legacyOnly = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// modernFault says what is wrong with a message or what its header says of it;
// nil: nothing. An unknown version comes before all that its revision may have
// otherwise.
func (s *Server) modernFault(h http.Header, m *wire.Message) *modernFault {
	if m.Kind != wire.Request && m.Kind != wire.Notification {
		return &modernFault{code: wire.CodeInvalidRequest, text: "revision " + wire.ModernRevision + " has no requests to clients, and so no answers"}
	}
	required := m.Kind == wire.Request
	if fault := s.versionFault(h[headerVersion], m, required); fault != nil {
		return fault
	}
	if slices.Contains(legacyOnly, m.Method) {
		return &modernFault{code: wire.CodeMethodNotFound, text: m.Method + " is none of the requests of revision " + wire.ModernRevision}
	}
	if text := metaFault(m); required && text != "" {
		return &modernFault{code: wire.CodeInvalidParams, text: text}
	}
	if text := headerFault(h, m, required); text != "" {
		return &modernFault{code: wire.CodeHeaderMismatch, text: text}
	}
	return nil
}

// versionFault compares the revision that the header names with the body's, and
// with those spoken here.
func (s *Server) versionFault(values []string, m *wire.Message, required bool) *modernFault {
	claim := m.P.Modern
	claims := claim != nil && claim.VersionAt.Present() && m.Raw[claim.VersionAt.Start] == '"'
	switch {
	case len(values) == 0 && !claims && m.Method == "initialize":
		return s.unsupported(m.P.ProtocolVersion)
	case len(values) == 0 && required:
		return mismatch("MCP-Protocol-Version is missing: revision " + wire.ModernRevision + " needs it with every request")
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return mismatch("there is more than one MCP-Protocol-Version")
	case claims && claim.Version != values[0]:
		return mismatch("MCP-Protocol-Version is " + shown(values[0]) + ", but the body's _meta has " + shown(claim.Version))
	case values[0] != wire.ModernRevision:
		return s.unsupported(values[0])
	}
	return nil
}

func mismatch(text string) *modernFault {
	return &modernFault{code: wire.CodeHeaderMismatch, text: text}
}

// unsupported says which revisions are spoken here, newest first.
func (s *Server) unsupported(requested string) *modernFault {
	data := wire.AppendString([]byte(`{"supported":[`), wire.ModernRevision)
	text := "unsupported protocol version: " + wire.ModernRevision + " is spoken here"
	if s.cfg.Open != nil {
		for _, revision := range slices.Backward(wire.LegacyRevisions()) {
			data = wire.AppendString(append(data, ','), revision)
		}
		text += ", and with sessions 2024-11-05 to 2025-11-25"
	}
	data = wire.AppendString(append(data, `],"requested":`...), clip(requested))
	return &modernFault{code: wire.CodeUnsupportedVersion, text: text, data: append(data, '}')}
}

// metaFault says what a request does not say of itself (2026-07-28, basic/index,
// "Per-request protocol fields").
func metaFault(m *wire.Message) string {
	p := m.P.Modern
	if p == nil || !p.VersionAt.Present() || m.Raw[p.VersionAt.Start] != '"' {
		return "params._meta must have the protocol's version as " + wire.MetaVersion
	}
	if !p.Capabilities.Present() || m.Raw[p.Capabilities.Start] != '{' {
		return "params._meta must have the client's capabilities, an object, as " + wire.MetaCapabilities
	}
	return ""
}

// headerFault compares what else the header repeats with the body.
func headerFault(h http.Header, m *wire.Message, required bool) string {
	switch values := h[wire.HeaderMethod]; {
	case len(values) > 1:
		return "there is more than one Mcp-Method"
	case len(values) == 0 && required:
		return "Mcp-Method is missing"
	case len(values) == 1 && values[0] != m.Method:
		return "Mcp-Method is " + shown(values[0]) + ", but the body's method is " + shown(m.Method)
	}
	values := h[wire.HeaderName]
	if len(values) > 1 {
		return "there is more than one Mcp-Name"
	}
	name, named := m.Named()
	switch {
	case !named:
		return ""
	case len(values) == 0 && name == "": // the body is at fault
		return ""
	case len(values) == 0:
		return "Mcp-Name is missing, which must repeat " + shown(name)
	}
	switch text, ok := wire.DecodeHeader(values[0]); {
	case !ok:
		return "Mcp-Name is neither visible ASCII nor Base64 as it should be"
	case text != name:
		return "Mcp-Name is " + shown(text) + ", but the body names " + shown(name)
	}
	return ""
}

// shown is what a client sent, as it is told again.
func shown(text string) string { return strconv.QuoteToASCII(clip(text)) }

// clip cuts what a client sent.
func clip(text string) string { return text[:min(len(text), 128)] }
