package streamhttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
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

// retryAfter is how long a client waits that is sent away, in seconds: by then
// a balancer knows better where to send it.
const retryAfter = "1"

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := s.admit(w, r)
	if !ok {
		return
	}
	s.serve(w, r, PeerInfo{RemoteAddr: r.RemoteAddr, who: who})
}

// serve serves a request of somebody who is let in; from is from where and by whom it comes.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	// Who is not let in does not count: Close does not wait for who reads no refusal.
	if !s.requests.enter() {
		s.refuseEnding(w, r, from)
		return
	}
	defer s.requests.leave()
	run, ok := s.run(r)
	if !ok {
		s.refuse(w, r, ReasonPath, http.StatusNotFound, "nothing here: MCP is served at "+s.cfg.Path)
		return
	}
	from.Header, from.Principal, from.Run = r.Header, wire.PrincipalOf(from.who), run
	switch modern := r.Method != http.MethodPost && s.modern(r.Header); {
	case r.Method == http.MethodPost:
		s.post(w, r, from)
	case r.Method == http.MethodGet && !modern:
		s.get(w, r, from)
	case r.Method == http.MethodDelete && !modern:
		s.delete(w, r, from)
	default:
		allow, text := valueAllow, "use POST, GET or DELETE"
		if modern {
			allow, text = valuePost, "use POST: there are no sessions in this revision"
		}
		w.Header()["Allow"] = allow
		s.refuse(w, r, ReasonMethod, http.StatusMethodNotAllowed, text)
	}
}

// admit says who is asking, if the request may go on; else it is answered.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (who *asker.Who, ok bool) {
	origins := r.Header["Origin"]
	switch {
	case !s.guard.Host(r.Host):
		s.refuse(w, r, ReasonHost, http.StatusForbidden, "this Host is not served here: start the proxy with --allowed-host to allow it")
		return who, false
	case len(origins) > 1 || len(origins) == 1 && !s.guard.Origin(origins[0]):
		s.refuse(w, r, ReasonOrigin, http.StatusForbidden, "this Origin is not served here: start the proxy with --allowed-origin to allow it")
		return who, false
	case len(origins) == 1 && cors(w, r, origins[0]), s.cfg.Public != nil && s.cfg.Public(w, r):
		return who, false
	}
	if s.cfg.Authenticate != nil {
		if who, ok = s.cfg.Authenticate(w, r); !ok {
			return who, false
		}
		httpserver.Admit(w)
	}
	return who, true
}

// cors tells browsers what an allowed origin may do, and reports whether the
// request was answered by that.
func cors(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// run is the run that the path of a request names, "" for none; ok is false where
// the path is none that is served.
func (s *Server) run(r *http.Request) (id string, ok bool) {
	path := r.URL.Path
	if path == s.cfg.Path {
		return "", true
	}
	if !s.cfg.Runs {
		return "", false
	}
	id, ok = strings.CutPrefix(path, s.cfg.Path+"/runs/")
	return id, ok && id != "" && len(id) <= maxRunID && !strings.Contains(id, "/")
}

// maxRunID is how long the id of a run in a path may be.
const maxRunID = 128

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
	value := ""
	if values := h["Content-Type"]; len(values) == 1 {
		value = values[0]
	}
	if value == typeJSON {
		return ""
	}
	name, params, err := mime.ParseMediaType(value)
	switch charset, ok := params["charset"]; {
	case err != nil || name != typeJSON:
		return "the Content-Type must be application/json: send JSON under it"
	case ok && !strings.EqualFold(charset, "utf-8"):
		return "JSON is UTF-8 here: send it so, with the Content-Type application/json"
	}
	return ""
}

// modern reports whether a request's header is of the modern era: it names a
// revision that is none of the legacy one, or nothing else is spoken here.
func (s *Server) modern(h http.Header) bool {
	if s.cfg.Modern == nil {
		return false
	}
	for _, version := range h[headerVersion] {
		if !wire.IsLegacyRevision(version) {
			return true
		}
	}
	return s.cfg.Open == nil
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

// refuse refuses a request, and tells whom Refused tells.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why Reason, status int, text string) {
	s.cfg.tell(why, status, r)
	refuse(w, status, text)
}

// refuseEnding refuses a request since the server ends: somebody else will have the run of one that was passed on.
func (s *Server) refuseEnding(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	if from.passed {
		w.Header().Set(httpserver.HeaderNotHere, httpserver.Ending)
		refuse(w, http.StatusMisdirectedRequest, "this process is ending")
		return
	}
	w.Header()["Retry-After"] = []string{retryAfter}
	s.refuse(w, r, ReasonEnding, http.StatusServiceUnavailable, "shutting down")
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

// read reads the body of the request, unless that was done; false: it could not be read, and the request is
// answered.
func (p *post) read() bool {
	s := p.srv
	if p.body.raw != nil {
		return true
	}
	if p.r.ContentLength > int64(s.cfg.MaxMessage) {
		s.refuseMessage(p.w, p.r, p.takes, p.inSession(), s.tooLarge(), nil)
		return false
	}
	httpserver.AllowBodyTime(p.w, p.r)
	p.claimBody()
	raw, err := p.body.claim.Read(p.r, s.cfg.MaxMessage)
	if err == nil {
		httpserver.Keep(p.w) // of who has neither session nor principal
		p.body.raw = raw
		return true
	}
	var scan wire.IDScan
	_, _ = scan.Write(raw)
	p.body.claim.Release()
	raw = nil // the rest of the body takes no memory
	var fault *refusal
	switch {
	case errors.Is(err, httpserver.ErrBodyTooLarge):
		fault = s.tooLarge()
	case errors.Is(err, httpserver.ErrNoRoom):
		fault = &refusal{reason: ReasonCrowded, status: http.StatusServiceUnavailable, code: wire.CodeInternal, text: noRoom}
	default:
		fault = &refusal{reason: ReasonMessage, status: http.StatusBadRequest, code: wire.CodeParse, text: "the body ended too early", truncated: true}
	}
	s.refuseMessage(p.w, p.r, p.takes, p.inSession(), fault, &scan)
	return false
}

const noRoom = "the bodies of other requests take the memory that there is for them: send the request again, or have --max-body-memory raised"

func (s *Server) tooLarge() *refusal {
	return &refusal{reason: ReasonTooLarge, status: http.StatusRequestEntityTooLarge, code: wire.CodeInvalidRequest,
		text: "a message may have " + strconv.Itoa(s.cfg.MaxMessage) + " bytes, and this one has more: send less, or have --max-message raised"}
}

// claimBody begins to count the body, for all whose it is.
func (p *post) claimBody() {
	cfg := &p.srv.cfg
	// Where nobody can have a session or a principal, there is nobody to keep room for.
	known := p.inSession() || p.from.Principal.Known() || cfg.Open == nil && cfg.Authenticate == nil
	claim := cfg.Bodies.Claim(p.r, known, p.srv.ending.Done())
	if p.body.claim = claim; claim == nil {
		return
	}
	if p.inSession() {
		claim.Holders = append(claim.Holders, sessionID(p.r.Header[headerSession][0]))
	}
	by := partyOf(p.from)
	if by.who.Known() && cfg.PrincipalShare < cfg.Sessions {
		claim.Holders = append(claim.Holders, by.who)
	}
	if by.network.IsValid() && cfg.Share < cfg.Sessions {
		claim.Holders = append(claim.Holders, by.network)
	}
}

// refusal is why a POST is refused before its message is looked at.
type refusal struct {
	reason    Reason
	status    int
	code      int // of the JSON-RPC error
	text      string
	header    bool // the header is at fault, as in each request of its client: the status stands in a session, too
	truncated bool // its body has ended too early
}

// maxPast is how much of a body is read past for the id of the message that it holds.
const maxPast = 64 << 20

// refuseMessage refuses a POST, of a session that there is or of none. scan has read what was read of
// its body; nil: nothing was.
//
// Who has a session waits for an answer by its id, and the Python SDK 1.x gives up the
// session, with all that it waits for, for a status that is an error and not 404. So the
// answer is a JSON-RPC error under that id, which is found without keeping the body, and
// the status 200, unless it is not known who waits for what. In the modern era the status
// stays, and the id is told as well: the Go SDK gives its connection up without. Who has no
// session gets plain text, from which SDKs begin anew.
func (s *Server) refuseMessage(w http.ResponseWriter, r *http.Request, takes accepts, inSession bool, fault *refusal, scan *wire.IDScan) {
	switch fault.status {
	case http.StatusUnsupportedMediaType:
		w.Header()["Accept-Encoding"] = valueIdentity
	case http.StatusServiceUnavailable:
		w.Header()["Retry-After"] = []string{retryAfter}
	}
	if !inSession && !s.modern(r.Header) {
		if !fault.header { // the body was not read to its end
			w.Header()["Connection"] = []string{"close"}
		}
		s.refuse(w, r, fault.reason, fault.status, fault.text)
		return
	}
	if scan == nil {
		scan = new(wire.IDScan)
		httpserver.AllowBodyTime(w, r)
	}
	var id []byte
	sure := false
	if !fault.truncated {
		id, sure = readPast(r, scan, int64(s.cfg.MaxMessage)+maxPast)
	}
	if !sure {
		w.Header()["Connection"] = []string{"close"}
	}
	status := fault.status
	if inSession && sure && !fault.header {
		status = http.StatusOK
		w.Header().Del("Retry-After")
	}
	s.cfg.tell(fault.reason, status, r)
	takes.write(w, status, wire.ErrorAnswer(id, fault.code, fault.text, nil))
}

// readPast reads the rest of a body without keeping it, at most so many bytes and until the
// read deadline, and returns the addressee of its message.
func readPast(r *http.Request, scan *wire.IDScan, most int64) (id []byte, sure bool) {
	if r.ContentLength > most {
		return nil, false
	}
	n, err := io.CopyBuffer(scan, io.LimitReader(r.Body, most+1), make([]byte, 4<<10))
	if err != nil || n > most {
		return nil, false
	}
	return scan.Addressee()
}

// write gives a JSON-RPC error to a client, as an event where it takes nothing else.
func (a accepts) write(w http.ResponseWriter, status int, answer []byte) {
	if status != http.StatusOK || a.json || !a.sse {
		writeJSON(w, status, answer)
		return
	}
	w.Header()["Content-Type"] = valueEvents
	w.Header()["Cache-Control"] = valueNoCache
	_, _ = w.Write([]byte("event: message\ndata: " + string(wire.OneLine(answer)) + "\n\n"))
}

// inFlight counts the requests under way until it is closed: from then on no more
// begin. It is what a mutex and a WaitGroup do together, at half the price. It is
// safe for concurrent use; its zero value is not ready.
type inFlight struct {
	_     cacheLine
	n     atomic.Int64 // with shut added once it is closed
	_     cacheLine
	empty chan struct{} // closes when it is closed and nothing is under way
	once  sync.Once     // for that
}

const shut = 1 << 62

// cacheLine keeps apart what every request writes from what every request only reads: what
// lies on one cache line with it would have to be fetched again each time.
type cacheLine [64]byte

func (u *inFlight) init() { u.empty = make(chan struct{}) }

// enter reports whether one more may begin; then leave is to be called.
func (u *inFlight) enter() bool {
	if u.n.Add(1) < shut {
		return true
	}
	u.leave()
	return false
}

func (u *inFlight) leave() {
	if u.n.Add(-1) == shut {
		u.once.Do(func() { close(u.empty) })
	}
}

// close lets no more begin, and reports whether it is the first to do so.
func (u *inFlight) close() bool {
	for {
		n := u.n.Load()
		if n >= shut {
			return false
		}
		if u.n.CompareAndSwap(n, n+shut+1) {
			u.leave() // as if one had been under way until now
			return true
		}
	}
}

func (u *inFlight) closed() bool { return u.n.Load() >= shut }
