package streamhttp

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// post is one POST under way, as the stream of its request: nothing has been
// written yet, or it has become an event stream.
type post struct {
	s     *session
	w     http.ResponseWriter
	ctx   context.Context // the client's end of it
	head  http.Header     // of the request
	claim *bodyClaim      // of its body
	takes accepts
	since int64 // when it began, in ticks
	whole bool  // it must not become an event stream before its answer

	plain atomic.Bool // it has its answer, as one body: nothing changes any more

	// Guarded by the session's mutex:
	newer, older *post // in the session's list of those waiting
	listed       bool
	answered     bool
	declined     bool // by the answer
	answer       []byte
	inParts      bool // the answer is a result under id
	id, result   []byte
	gathered     [][]byte      // a batch's answers
	box          *outbox       // the event stream
	out          *outlet       // the first connection of box, this POST's own
	paused       chan struct{} // closed when its response is to end before its answer; nil: it never is
	over         bool          // nothing is left to wait for
	left         bool          // its response has ended before that
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	takes := accept(r.Header)
	fault := headFault(r.Header, takes)
	switch modern := s.modern(r.Header); {
	case !modern && len(r.Header[headerSession]) > 0:
		s.postTo(w, r, takes, from, fault)
	case fault != nil:
		s.refuseMessage(w, r, takes, nil, fault, nil)
	case modern:
		s.postModern(w, r, takes, from)
	default:
		s.initialize(w, r, takes, from)
	}
}

// postTo serves a POST that names a session.
func (s *Server) postTo(w http.ResponseWriter, r *http.Request, takes accepts, from PeerInfo, fault *refusal) {
	ses := s.session(w, r, from)
	if ses == nil {
		return
	}
	if text := versionFault(r.Header, ses.version); fault == nil && text != "" {
		fault = &refusal{reason: ReasonHeader, status: http.StatusBadRequest, code: wire.CodeInvalidRequest, text: text, header: true}
	}
	if fault != nil {
		s.refuseMessage(w, r, takes, ses, fault, nil)
		ses.leave()
		return
	}
	raw, claim, ok := s.body(w, r, takes, from, ses)
	if !ok {
		ses.leave()
		return
	}
	p := &post{s: ses, w: w, ctx: r.Context(), head: r.Header, claim: claim, takes: takes, since: s.clock.now.Load()}
	defer func() {
		if !p.left { // written here alone
			p.release()
		}
	}()
	p.serve(raw)
}

// release ends the request: it is under way no more, and its body takes no memory.
func (p *post) release() {
	p.claim.release()
	p.s.leave()
}

// serve hands on what the body holds and gives its answer.
func (p *post) serve(raw []byte) {
	if wire.IsBatch(raw) {
		p.serveBatch(raw)
		return
	}
	m, err := p.s.srv.cfg.Limits.Read(raw, wire.FromClient)
	if err != nil {
		p.reject(err)
		return
	}
	if m.Method == "initialize" {
		p.reject(&wire.Error{Code: wire.CodeInvalidRequest, ID: m.Bytes(m.ID), Sure: true,
			Message: "this session is initialized: leave Mcp-Session-Id out to begin another"})
		return
	}
	if p.s.srv.takesModern(m) {
		p.reject(&wire.Error{Code: wire.CodeHeaderMismatch, ID: m.Bytes(m.ID),
			Message: "the body is of revision " + wire.ModernRevision + ", but its MCP-Protocol-Version does not say so"})
		return
	}
	pending := p.s.upper.Handle(m, p)
	if m.Kind != wire.Request || !p.canPause() {
		p.wait(pending)
	} else if p.waitApart(pending) {
		return
	}
	p.end(m.Kind == wire.Request, m.Bytes(m.ID))
}

// reject answers a POST whose message, or batch, cannot be read. It is no HTTP error where
// its client takes the JSON-RPC error for the answer: see [Server.refuseMessage].
func (p *post) reject(err error) {
	wire.Unread(p.s.upper, err)
	status := http.StatusBadRequest
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Sure {
		status = http.StatusOK
	}
	p.takes.write(p.w, status, faultAnswer(err))
}

// wait waits for what Handle left to be waited for.
func (p *post) wait(pending wire.Pending) {
	if pending == nil {
		return
	}
	p.list()
	pending.Wait()
}

// list has the sweeper watch over the POST.
func (p *post) list() {
	if p.whole || !p.takes.sse {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.answered || p.box != nil || p.listed {
		return
	}
	p.listed = true
	if p.older = p.s.waiting; p.older != nil {
		p.older.newer = p
	}
	p.s.waiting = p
}

func (p *post) unlistLocked() {
	if !p.listed {
		return
	}
	p.listed = false
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		p.s.waiting = p.older
	}
	if p.older != nil {
		p.older.newer = p.newer
	}
	p.newer, p.older = nil, nil
}

// openLocked makes the POST an event stream, written by a goroutine of its own
// that end waits for.
func (p *post) openLocked() {
	p.attachLocked()
	go p.out.run(p.ctx)
}

func (p *post) attachLocked() {
	p.unlistLocked()
	p.box = p.s.openStream()
	p.out = newOutlet(p.box, p.w)
	p.box.attach(p.out)
	for _, msg := range p.gathered {
		p.box.add(msg)
	}
	p.gathered = nil
}

// Send implements wire.Stream.
func (p *post) Send(msg []byte) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.answered || p.box == nil && (p.whole || !p.takes.sse) {
		return false
	}
	if p.box == nil {
		p.openLocked()
	}
	return p.box.add(msg)
}

// Answer implements wire.Stream.
func (p *post) Answer(msg []byte) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.answered {
		return
	}
	p.answered = true
	p.unlistLocked()
	switch {
	case p.box == nil:
		p.answer = msg
		p.plain.Store(true)
	case msg == nil:
		p.box.finish()
	default:
		p.box.addLast(msg)
	}
}

// AnswerResult implements wire.ResultStream: a long list is not copied for its id.
func (p *post) AnswerResult(id, result []byte) {
	if !p.answerParts(id, result) {
		p.Answer(wire.ResultAnswer(id, result))
	}
}

func (p *post) answerParts(id, result []byte) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.answered || p.box != nil || !p.takes.json || p.prefersEvents() {
		return false
	}
	p.answered = true
	p.unlistLocked()
	p.inParts, p.id, p.result = true, id, result
	p.plain.Store(true)
	return true
}

// Listening implements wire.Stream.
func (p *post) Listening() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.box != nil {
		return !p.answered && p.box.attached()
	}
	return !p.answered && !p.whole && p.takes.sse
}

// Header implements wire.HeadedStream.
func (p *post) Header(name string) string { return p.head.Get(name) }

// Headers implements wire.HeadedStream.
func (p *post) Headers(name string) []string { return p.head[name] }

// end completes the response once nothing is left to wait for.
func (p *post) end(asked bool, id []byte) {
	answer, out := p.settle()
	switch {
	case out != nil:
		<-out.done
	case p.declined:
		decline(p.w, answer)
	case p.inParts:
		writeResult(p.w, p.id, p.result)
	case answer != nil && p.takes.json && !p.prefersEvents():
		writeJSON(p.w, answer)
	case answer != nil:
		p.stream(answer)
	case !asked:
		p.w.WriteHeader(http.StatusAccepted)
	case p.takes.sse: // cancelled: no answer is due
		p.w.Header()["Content-Type"] = valueEvents
		p.w.WriteHeader(http.StatusOK)
	default:
		writeJSON(p.w, wire.ErrorAnswer(id, wire.CodeInternal, "the request was cancelled", nil))
	}
}

// settle closes the POST as a stream, and returns what is to be written or
// who writes it.
func (p *post) settle() (answer []byte, out *outlet) {
	if p.plain.Load() {
		return p.answer, nil
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.unlistLocked()
	p.answered = true
	if p.box != nil {
		p.box.finish()
	}
	return p.answer, p.out
}

// stream writes the answer as an event, here, to a client that takes nothing
// else.
func (p *post) stream(answer []byte) {
	p.s.mu.Lock()
	p.attachLocked()
	p.box.addLast(answer)
	p.s.mu.Unlock()
	p.out.run(p.ctx)
}

func writeJSON(w http.ResponseWriter, answer []byte) {
	announceJSON(w, len(answer))
	_, _ = w.Write(answer)
}

// writeResult writes what wire.ResultAnswer makes of id and result.
func writeResult(w http.ResponseWriter, id, result []byte) {
	head, tail := wire.ResultFrame(id)
	announceJSON(w, len(head)+len(result)+len(tail))
	_, _ = w.Write(head)
	_, _ = w.Write(result)
	_, _ = w.Write(tail)
}

func announceJSON(w http.ResponseWriter, length int) {
	h := w.Header()
	h["Content-Type"] = valueJSON
	if length > 1<<10 { // net/http counts what is shorter by itself
		h["Content-Length"] = []string{strconv.Itoa(length)}
	}
}

// faultAnswer is the JSON-RPC answer to a message that cannot be read.
func faultAnswer(err error) []byte {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Answer()
	}
	return wire.ErrorAnswer(nil, wire.CodeParse, err.Error(), nil)
}
