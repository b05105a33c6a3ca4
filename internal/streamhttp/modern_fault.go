package streamhttp

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// answerFault answers what nobody else sees: whatever its code, it is a bad request.
func answerFault(w http.ResponseWriter, m *wire.Message, f *wire.Fault) {
	writeAnswer(w, faultStatus(f), wire.ErrorAnswer(m.Bytes(m.ID), f.Code, f.Text, f.Data))
}

// faultStatus is the HTTP status of an answer with a fault: never 200.
func faultStatus(f *wire.Fault) int {
	if status := statusOf(f.Code); status != http.StatusOK {
		return status
	}
	return http.StatusBadRequest
}

// reasonOf is why a request with a fault is refused.
func reasonOf(f *wire.Fault) Reason {
	switch f.Code {
	case wire.CodeHeaderMismatch:
		return ReasonHeader
	case wire.CodeUnsupportedVersion:
		return ReasonVersion
	}
	return ReasonMessage
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
func (s *Server) modernFault(h http.Header, m *wire.Message) *wire.Fault {
	if m.Kind != wire.Request && m.Kind != wire.Notification {
		return &wire.Fault{Code: wire.CodeInvalidRequest, Text: "revision " + wire.ModernRevision + " has no requests to clients, and so no answers"}
	}
	required := m.Kind == wire.Request
	if fault := s.versionFault(h[headerVersion], m, required); fault != nil {
		return fault
	}
	if slices.Contains(legacyOnly, m.Method) {
		return &wire.Fault{Code: wire.CodeMethodNotFound, Text: m.Method + " is none of the requests of revision " + wire.ModernRevision}
	}
	if required {
		if fault := s.spoken().MetaFault(m); fault != nil {
			return fault
		}
	}
	if text := headerFault(h, m, required); text != "" {
		return mismatch(text)
	}
	return nil
}

// versionFault compares the revision that the header names with the body's, and
// with those spoken here.
func (s *Server) versionFault(values []string, m *wire.Message, required bool) *wire.Fault {
	claims := m.SaysVersion()
	switch {
	case len(values) == 0 && !claims && m.Method == "initialize":
		return s.spoken().Unsupported(m.P.ProtocolVersion)
	case len(values) == 0 && required:
		return mismatch("MCP-Protocol-Version is missing: revision " + wire.ModernRevision + " needs it with every request")
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return mismatch("there is more than one MCP-Protocol-Version")
	case claims && m.P.Modern.Version != values[0]:
		return mismatch("MCP-Protocol-Version is " + shown(values[0]) + ", but the body's _meta has " + shown(m.P.Modern.Version))
	case values[0] != wire.ModernRevision:
		return s.spoken().Unsupported(values[0])
	}
	return nil
}

func mismatch(text string) *wire.Fault {
	return &wire.Fault{Code: wire.CodeHeaderMismatch, Text: text}
}

// spoken are the eras that clients may speak here, this one among them.
func (s *Server) spoken() wire.Spoken { return wire.Spoken{Legacy: s.cfg.Open != nil, Modern: true} }

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

// shown is what a client sent, cut, as it is told again.
func shown(text string) string { return strconv.QuoteToASCII(text[:min(len(text), 128)]) }
