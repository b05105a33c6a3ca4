package streamhttp

import (
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Header names in their canonical form, for direct look-ups.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = wire.HeaderVersion
	headerLastEvent = "Last-Event-Id"
)

// Media types.
const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// Shared header values: they are never changed.
var (
	valueJSON     = []string{typeJSON}
	valueEvents   = []string{typeSSE}
	valueText     = []string{"text/plain; charset=utf-8"}
	valueNoCache  = []string{"no-cache, no-transform"}
	valueNo       = []string{"no"}
	valueAllow    = []string{"GET, POST, DELETE"}
	valuePost     = []string{"POST"}
	valueIdentity = []string{"identity"}
	valueNoSniff  = []string{"nosniff"}
)

// Protocol revisions with sessions.
const (
	revisionBatches = "2025-03-26" // the one that has JSON-RPC batches
	revisionPriming = "2025-11-25" // from here on clients understand events without data
)

// accepts is what a client takes as an answer.
type accepts struct {
	json, sse bool
	sseFirst  bool // event streams are named before JSON
}

// accept reads the Accept header. Without one a client gets JSON.
func accept(h http.Header) accepts {
	values := h["Accept"]
	switch {
	case len(values) == 0:
		return accepts{json: true}
	case len(values) == 1 && values[0] == typeJSON+", "+typeSSE:
		return accepts{json: true, sse: true}
	}
	var a accepts
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			a.add(item)
		}
	}
	return a
}

func (a *accepts) add(item string) {
	name, params, _ := strings.Cut(item, ";")
	if refused(params) {
		return
	}
	switch strings.ToLower(strings.TrimSpace(name)) {
	case typeJSON, "application/*":
		a.json = true
	case typeSSE, "text/*":
		a.sse, a.sseFirst = true, !a.json
	case "*/*":
		a.json, a.sse = true, true
	}
}

// refused reports whether the parameters of an Accept item say q=0.
func refused(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if strings.EqualFold(key, "q") {
			return strings.Trim(value, "0.") == ""
		}
	}
	return false
}

// headFault is the refusal of a POST whose header has a body, or wants an answer, of a form
// that is not served; nil: there is nothing to refuse.
func headFault(h http.Header, takes accepts) *refusal {
	fault := &refusal{reason: ReasonMedia, status: http.StatusUnsupportedMediaType, code: wire.CodeInvalidRequest, text: bodyFault(h), header: true}
	switch {
	case fault.text != "":
	case !takes.json && !takes.sse:
		fault.status, fault.text = http.StatusNotAcceptable, "answers are application/json or text/event-stream: accept both"
	default:
		return nil
	}
	return fault
}

// bodyFault says what a request's header has its body be that is not read here; "":
// nothing.
func bodyFault(h http.Header) string {
	for _, value := range h["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(value), "identity") {
			return "bodies are read as they are: send this one without a Content-Encoding"
		}
	}
	given := ""
	if values := h["Content-Type"]; len(values) == 1 {
		given = values[0]
	}
	if given == typeJSON {
		return ""
	}
	name, params, err := mime.ParseMediaType(given)
	switch charset, ok := params["charset"]; {
	case err != nil || name != typeJSON:
		return "the Content-Type must be application/json: send JSON under it"
	case ok && !strings.EqualFold(charset, "utf-8"):
		return "JSON is UTF-8 here: send it so, with the Content-Type application/json"
	}
	return ""
}

// versionFault says what is wrong with a request's MCP-Protocol-Version, given
// the session's revision; empty: nothing.
func versionFault(h http.Header, negotiated string) string {
	values := h[headerVersion]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == negotiated:
		return ""
	case len(values) > 1:
		return "more than one MCP-Protocol-Version"
	case !wire.IsLegacyRevision(values[0]):
		return "this MCP-Protocol-Version is not spoken here: the session's is " + negotiated
	}
	return "this MCP-Protocol-Version is not the session's, which is " + negotiated
}

// refuse answers a request that is no message to anybody. It is plain text:
// clients take a JSON-RPC body for the answer of a session that exists, and
// newer ones fall back to initialize where there is none.
func refuse(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h["Content-Type"] = valueText
	h["X-Content-Type-Options"] = valueNoSniff
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}
