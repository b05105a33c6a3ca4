package streamhttp

import (
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// The modern era (2026-07-28): there are no sessions, and every POST is one by itself.

// serveModern serves a message of the modern era, or reports that it is to be tried once more.
func (p *post) serveModern(m *wire.Message) (again bool) {
	s := p.srv
	if fault := s.modernFault(p.r.Header, m); fault != nil { // nobody else sees it: whatever its code, it is a bad request
		reason, status := ReasonMessage, statusOf(fault.Code)
		switch fault.Code {
		case wire.CodeHeaderMismatch:
			reason = ReasonHeader
		case wire.CodeUnsupportedVersion:
			reason = ReasonVersion
		}
		if status == http.StatusOK {
			status = http.StatusBadRequest
		}
		s.cfg.tell(reason, status, p.r)
		writeJSON(p.w, status, wire.ErrorAnswer(m.Bytes(m.ID), fault.Code, fault.Text, fault.Data))
		return false
	}
	if m.Kind == wire.Notification {
		// Requests are cancelled by closing their response, so nobody's is by a notification that names its id.
		if m.Method != "notifications/cancelled" {
			s.cfg.Modern(m, nowhere{}, p.from)
		}
		p.w.WriteHeader(http.StatusAccepted)
		return false
	}
	if p.listens = m.Method == "subscriptions/listen"; p.listens && !p.takes.sse {
		s.refuse(p.w, p.r, ReasonMedia, http.StatusNotAcceptable, "subscriptions/listen is answered by text/event-stream: accept it")
		return false
	}
	p.party = partyOf(p.from)
	if !s.posts.enter(p) {
		s.cfg.tell(ReasonCrowded, http.StatusServiceUnavailable, p.r)
		p.w.Header()["Retry-After"] = []string{retryAfter}
		writeJSON(p.w, http.StatusServiceUnavailable,
			wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, "too many requests are under way: wait for some to be answered", nil))
		return false
	}
	defer s.posts.leave(p)
	if pending := s.cfg.Modern(m, p, p.from); pending != nil {
		p.cancelBy(pending)
		if p.listens {
			p.listen(pending)
		} else {
			pending.Wait()
		}
	}
	return p.end(true, m)
}

// cancelBy keeps the way to cancel the request.
func (p *post) cancelBy(pending wire.Pending) {
	c, ok := pending.(wire.Cancellable)
	if !ok {
		return
	}
	p.mu.Lock()
	p.cancels.pending = c
	cancelled := p.cancels.done
	p.mu.Unlock()
	if cancelled {
		c.Cancel()
	}
}

// listen writes a stream that lasts, while the rest goes on by itself.
func (p *post) listen(pending wire.Pending) {
	over := make(chan struct{})
	done := func() { close(over) }
	if !pending.Detach(done) {
		go func() { defer done(); pending.Wait() }()
	}
	p.mu.Lock()
	if p.stream == nil && !p.answer.given {
		p.attachLocked()
	}
	writer := p.writer
	p.mu.Unlock()
	if writer != nil {
		writer.run(p.r.Context())
	}
	<-over
}

// nowhere is the stream of a notification: nothing answers it.
type nowhere struct{}

func (nowhere) Send([]byte) bool { return false }
func (nowhere) Answer([]byte)    {}
func (nowhere) Listening() bool  { return false }

// modernPosts are the requests of the modern era under way.
type modernPosts struct {
	_        cacheLine
	mu       sync.Mutex // guards what follows
	all      postList
	requests quota
	listens  quota // those of them that are subscriptions/listen streams
	closed   bool
	_        cacheLine
}

func (e *modernPosts) init(cfg *ServerConfig) {
	e.requests = newQuota(cfg.Requests, half(cfg.Requests), cfg.ofPrincipal(cfg.Requests))
	e.listens = newQuota(cfg.Listens, half(cfg.Listens), cfg.ofPrincipal(cfg.Listens))
}

func (e *modernPosts) quotaLocked(p *post) *quota {
	if p.listens {
		return &e.listens
	}
	return &e.requests
}

// enter reports whether there is room for another one.
func (e *modernPosts) enter(p *post) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.quotaLocked(p).take(p.party) {
		return false
	}
	e.all.add(p)
	return true
}

func (e *modernPosts) leave(p *post) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quotaLocked(p).giveBack(p.party)
	e.all.remove(p)
}

// append appends all of them to list.
func (e *modernPosts) append(list []*post) []*post {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p := e.all.newest; p != nil; p = p.link.older {
		list = append(list, p)
	}
	return list
}

// takeRefused returns how many were refused since the last call.
func (e *modernPosts) takeRefused() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.takeRefused() + e.listens.takeRefused()
}

// close takes no more, and cancels those there are.
func (e *modernPosts) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	for _, p := range e.append(nil) {
		p.cancel()
	}
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
