package streamhttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// post is one POST under way, of either era, as the stream of its request: nothing has been
// written yet, or it has become an event stream. In a session the client can come back for
// that; in the modern era whoever closes it cancels the request.
type post struct {
	srv     *Server
	ses     *session // nil: the modern era, or about to begin
	w       http.ResponseWriter
	r       *http.Request
	body    body
	from    PeerInfo
	takes   accepts
	since   int64 // when it began, in ticks
	whole   bool  // it must not become an event stream before its answer
	listens bool  // it is subscriptions/listen: an event stream in any case
	party   party // that it counts for in the modern era

	link     link        // of the list that it is in
	mu       *sync.Mutex // the session's, or own; guards what follows
	own      sync.Mutex
	answer   answer
	gathered [][]byte     // a batch's answers
	stream   *stream      // nil: no event stream yet
	writer   *eventWriter // the first connection of stream, this POST's own
	pause    pause
	cancels  cancels
}

// body is the body of a POST.
type body struct {
	claim *httpserver.BodyClaim // nil: it counts nothing
	raw   []byte                // nil: it was not read yet
	id    []byte                // of the request that it is, as far as event ids have it; nil: none
	since time.Time             // when the request was to be passed on first; zero: it never was
	asked bool                  // all others were asked whether they serve it
	moves *atomic.Int64         // among which it counts that are to be served elsewhere; nil: it does not
}

// sessionID is a session's id, as whose a body counts.
type sessionID string

// link is a POST's place in a postList.
type link struct {
	newer, older *post
	listed       bool
}

// answer is what a POST is answered with.
type answer struct {
	given            bool // nothing changes any more
	status           int
	head, body, tail []byte // nil: none is due
	moved            error  // why it is served elsewhere in place of being answered; nil: it is not
}

// pause is of a POST whose response may have to end before its answer.
type pause struct {
	asked chan struct{} // closed when it is to; nil: it never is
	over  bool          // nothing is left to wait for
	left  bool          // the response has ended before that
}

// cancels is how a request of the modern era is cancelled.
type cancels struct {
	pending wire.Cancellable // nil: nothing to cancel
	done    bool
	unwatch func() bool // nil: nobody watches for the client's going
}

// postList is a list of POSTs. Each is in one list at most.
type postList struct{ newest *post }

func (l *postList) add(p *post) {
	if p.link.listed {
		return
	}
	p.link = link{older: l.newest, listed: true}
	if p.link.older != nil {
		p.link.older.link.newer = p
	}
	l.newest = p
}

func (l *postList) remove(p *post) {
	if !p.link.listed {
		return
	}
	if p.link.newer != nil {
		p.link.newer.link.older = p.link.older
	} else {
		l.newest = p.link.older
	}
	if p.link.older != nil {
		p.link.older.link.newer = p.link.newer
	}
	p.link = link{}
}

// post serves a POST, for as often as it is to be tried here.
func (s *Server) post(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	p := &post{srv: s, w: w, r: r, from: from, takes: accept(r.Header), since: s.clock.now.Load()}
	defer func() {
		if p.body.moves != nil {
			p.body.moves.Add(-1)
		}
	}()
	for p.try() {
		p = &post{srv: s, w: w, r: r, from: from, takes: p.takes, since: p.since, body: p.body}
	}
}

// try serves the request, and reports whether it is to be tried once more: then its body is kept.
func (p *post) try() (again bool) {
	s := p.srv
	p.mu = &p.own
	defer func() {
		switch {
		case again:
			p.leave()
		case !p.pause.left: // written here alone
			p.release()
		}
	}()
	fault := headFault(p.r.Header, p.takes)
	if len(p.r.Header[headerSession]) > 0 && !s.modern(p.r.Header) {
		if p.ses, p.answer.moved = s.session(p.w, p.r, p.from); !p.inSession() {
			return false
		}
	}
	if p.ses != nil {
		p.mu = &p.ses.mu
		if text := versionFault(p.r.Header, p.ses.version); fault == nil && text != "" {
			fault = &refusal{reason: ReasonHeader, status: http.StatusBadRequest, code: wire.CodeInvalidRequest, text: text, header: true}
		}
	}
	switch {
	case fault != nil:
		s.refuseMessage(p.w, p.r, p.takes, p.inSession(), fault, p.body.scan())
	case p.read():
		return p.serve()
	}
	return false
}

// inSession reports, before the request is handed on, whether it has a session, here or elsewhere.
func (p *post) inSession() bool { return p.ses != nil || p.answer.moved != nil }

// scan has read what was read of the body; nil: nothing was.
func (b *body) scan() *wire.IDScan {
	if b.raw == nil {
		return nil
	}
	scan := new(wire.IDScan)
	_, _ = scan.Write(b.raw)
	return scan
}

// release ends the request: it is under way no more, and its body takes no memory.
func (p *post) release() {
	if p.body.claim != nil {
		p.body.claim.Release()
	}
	p.leave()
}

// leave ends the request in its session.
func (p *post) leave() {
	if p.ses != nil {
		p.ses.leave()
	}
}

// serve hands on what the body holds and gives its answer, or reports that the request is to be tried once more.
func (p *post) serve() (again bool) {
	s, raw, modern := p.srv, p.body.raw, !p.inSession() && p.srv.modern(p.r.Header)
	if wire.IsBatch(raw) && (p.inSession() || modern) {
		return p.serveBatch(raw)
	}
	var m *wire.Message
	if !wire.IsBatch(raw) {
		var err error
		if m, err = s.cfg.Limits.Read(raw, wire.FromClient); err != nil {
			p.reject(err)
			return false
		}
		modern = modern || s.cfg.Modern != nil && m.Era() == wire.Modern
	}
	switch {
	case p.answer.moved != nil:
		return p.passOn(p.answer.moved, m)
	case p.ses != nil && m.Method == "initialize":
		p.reject(&wire.Error{Code: wire.CodeInvalidRequest, ID: m.Bytes(m.ID), Sure: true,
			Message: "this session is initialized: leave Mcp-Session-Id out to begin another"})
	case p.ses != nil && modern:
		p.reject(&wire.Error{Code: wire.CodeHeaderMismatch, ID: m.Bytes(m.ID),
			Message: "the body is of revision " + wire.ModernRevision + ", but its MCP-Protocol-Version does not say so"})
	case p.ses != nil:
		if id := m.Bytes(m.ID); m.Kind == wire.Request && len(id) <= maxAsked {
			p.body.id = id
		}
		pending := p.ses.upper.Handle(m, p)
		if m.Kind != wire.Request || !p.canPause() {
			p.wait(pending)
		} else if p.waitApart(pending) {
			return false
		}
		return p.end(m.Kind == wire.Request, m)
	case modern:
		return p.serveModern(m)
	case m != nil && m.Method == "initialize" && m.Kind == wire.Request:
		return p.initialize(m)
	default:
		s.refuse(p.w, p.r, ReasonNoSession, http.StatusBadRequest, noSession)
	}
	return false
}

// reject answers a POST whose message, or batch, cannot be read. In a session it is no HTTP
// error where its client takes the JSON-RPC error for the answer: see [Server.refuseMessage].
func (p *post) reject(err error) {
	status := http.StatusBadRequest
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Sure && p.inSession() {
		status = http.StatusOK
	}
	if p.ses != nil {
		wire.Unread(p.ses.upper, err)
	} else {
		p.srv.cfg.tell(ReasonMessage, status, p.r)
	}
	if p.inSession() {
		p.takes.write(p.w, status, faultAnswer(err))
	} else {
		writeJSON(p.w, status, faultAnswer(err))
	}
}

// faultAnswer is the JSON-RPC answer to a message that cannot be read.
func faultAnswer(err error) []byte {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Answer()
	}
	return wire.ErrorAnswer(nil, wire.CodeParse, err.Error(), nil)
}

// wait waits for what Handle left to be waited for, while the sweeper may make the POST an
// event stream.
func (p *post) wait(pending wire.Pending) {
	if pending == nil {
		return
	}
	p.mu.Lock()
	if !p.whole && p.takes.sse && !p.answer.given && p.stream == nil {
		p.ses.waiting.add(p)
	}
	p.mu.Unlock()
	pending.Wait()
}

// sweepLocked makes an event stream of a POST that has waited for long enough.
func (p *post) sweepLocked(now int64) {
	if now-p.since > ticks(p.srv.cfg.Patience) {
		p.openLocked()
	}
}

// openLocked makes the POST an event stream, written by a goroutine of its own
// that end waits for. One that listens is written by that which serves it.
func (p *post) openLocked() {
	p.attachLocked()
	if !p.listens {
		go p.writer.run(p.r.Context())
	}
}

func (p *post) attachLocked() {
	if p.ses != nil {
		p.ses.waiting.remove(p)
		p.stream = p.ses.openStream()
		p.stream.asked = bytes.Clone(p.body.id)
	} else {
		p.stream = &stream{srv: p.srv, mu: p.mu}
	}
	p.writer = newEventWriter(p.stream, p.w)
	if p.ses == nil {
		p.writer.lost = p.cancel
	}
	p.stream.attach(p.writer)
	for _, msg := range p.gathered {
		p.stream.add(msg)
	}
	p.gathered = nil
}

// Send implements wire.Stream.
func (p *post) Send(msg []byte) bool {
	sent, closed := p.send(msg)
	if closed {
		p.cancel()
	}
	return sent
}

// send reports as well whether the client does not read, and so has its stream closed for good.
func (p *post) send(msg []byte) (sent, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.given || p.stream == nil && (p.whole || !p.takes.sse) {
		return false, false
	}
	if p.stream == nil {
		p.openLocked()
	}
	sent = p.stream.add(msg)
	return sent, !sent && p.ses == nil
}

// Answer implements wire.Stream.
func (p *post) Answer(msg []byte) { p.give(http.StatusOK, nil, msg, nil) }

// AnswerResult implements wire.ResultStream: a long list is not copied for its id.
func (p *post) AnswerResult(id, result []byte) {
	head, tail := wire.ResultFrame(id)
	p.give(http.StatusOK, head, result, tail)
}

// Fail implements wire.FailingStream. In a session it is Answer.
func (p *post) Fail(code int, msg []byte) {
	status := http.StatusOK
	if p.ses == nil {
		status = statusOf(code)
	}
	p.give(status, nil, msg, nil)
}

// Decline implements wire.DecliningStream. In a session it is Answer: what the session
// waits for is here and nowhere else, and an error status would have some SDKs give it up.
func (p *post) Decline(msg []byte) {
	status := http.StatusOK
	if p.ses == nil || p.whole {
		status = http.StatusServiceUnavailable
	}
	p.give(status, nil, msg, nil)
}

// give gives the POST its answer, which may come in parts.
func (p *post) give(status int, head, body, tail []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.given {
		return
	}
	p.closeLocked()
	if head != nil && (p.stream != nil || !p.takesJSON()) {
		head, body, tail = nil, bytes.Join([][]byte{head, body, tail}, nil), nil
	}
	p.answer = answer{given: true, status: status, head: head, body: body, tail: tail}
	switch {
	case p.stream == nil:
	case body == nil:
		p.stream.finish()
	default:
		p.stream.addLast(body)
	}
}

// closeLocked has the sweeper look after the POST no more.
func (p *post) closeLocked() {
	if p.ses != nil {
		p.ses.waiting.remove(p)
	}
	p.answer.given = true
}

// takesJSON reports whether an answer that nothing goes before is to be JSON: clients of
// 2025-11-25 that name event streams first get an event, so that they can resume it.
func (p *post) takesJSON() bool {
	return p.takes.json && !(p.takes.sseFirst && p.ses != nil && p.ses.primes() && !p.whole)
}

// Listening implements wire.Stream.
func (p *post) Listening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream != nil {
		return !p.answer.given && p.stream.attached()
	}
	return !p.answer.given && !p.whole && p.takes.sse
}

// Header implements wire.HeadedStream.
func (p *post) Header(name string) string { return p.r.Header.Get(name) }

// Headers implements wire.HeadedStream.
func (p *post) Headers(name string) []string { return p.r.Header[name] }

// Asks implements wire.AskedStream.
func (p *post) Asks() *asker.Who { return p.from.who }

// Until implements wire.HurriedStream.
func (p *post) Until() time.Time { return p.from.until }

// end completes the response to m, nil for a batch, once nothing is left to wait for, or reports that the request is to be
// tried once more.
func (p *post) end(asked bool, m *wire.Message) (again bool) {
	a, writer := p.settle()
	switch {
	case a.moved != nil:
		return p.passOn(a.moved, m)
	case writer != nil && p.listens: // written by now, unless all of it came before
		writer.run(p.r.Context())
	case writer != nil:
		<-writer.done
	case a.body != nil && (p.takesJSON() || a.status != http.StatusOK):
		if a.status == http.StatusServiceUnavailable {
			p.w.Header()["Retry-After"] = []string{retryAfter}
		}
		writeJSON(p.w, a.status, a.head, a.body, a.tail)
	case a.body != nil: // as an event, here, to a client that takes nothing else
		p.mu.Lock()
		p.attachLocked()
		p.stream.addLast(a.body)
		p.mu.Unlock()
		p.writer.run(p.r.Context())
	case !asked:
		p.w.WriteHeader(http.StatusAccepted)
	case p.ses != nil && p.takes.sse: // cancelled: no answer is due
		p.w.Header()["Content-Type"] = valueEvents
		p.w.WriteHeader(http.StatusOK)
	default: // likewise: whoever is still there has no other answer
		writeJSON(p.w, http.StatusOK, wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, "the request was cancelled", nil))
	}
	return false
}

// settle closes the POST as a stream, and returns what is to be written or
// who writes it.
func (p *post) settle() (answer, *eventWriter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancels.unwatch != nil {
		p.cancels.unwatch()
	}
	p.closeLocked()
	if p.stream != nil {
		p.stream.finish()
	}
	return p.answer, p.writer
}

// writeJSON writes an answer, which may come in parts.
func writeJSON(w http.ResponseWriter, status int, parts ...[]byte) {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	h := w.Header()
	h["Content-Type"] = valueJSON
	if length > 1<<10 { // net/http counts what is shorter by itself
		h["Content-Length"] = []string{strconv.Itoa(length)}
	}
	w.WriteHeader(status)
	for _, part := range parts {
		if len(part) > 0 {
			_, _ = w.Write(part)
		}
	}
}

// serveBatch hands on the members of a JSON-RPC batch one after the other,
// each with its answer before the next. The answers are one array, or events
// where the POST has become an event stream.
func (p *post) serveBatch(raw []byte) (again bool) {
	switch {
	case p.answer.moved != nil: // its session is elsewhere
		if _, err := p.srv.cfg.Limits.Split(raw); err != nil {
			p.reject(err)
			return false
		}
		return p.passOn(p.answer.moved, nil)
	case p.ses == nil:
		p.reject(&wire.Error{Code: wire.CodeInvalidRequest, Message: "revision " + wire.ModernRevision + " has no batches: send the messages one by one"})
		return false
	case p.ses.version != revisionBatches:
		p.reject(&wire.Error{Code: wire.CodeInvalidRequest,
			Message: "JSON-RPC batches belong to protocol revision " + revisionBatches + " alone: send the messages one by one"})
		return false
	}
	members, err := p.srv.cfg.Limits.Split(raw)
	if err != nil {
		p.reject(err)
		return false
	}
	for _, raw := range members {
		to := &member{post: p}
		m, err := p.srv.cfg.Limits.Read(raw, wire.FromClient)
		if err == nil {
			err = m.MemberFault()
		}
		if err != nil {
			wire.Unread(p.ses.upper, err)
			to.Answer(faultAnswer(err))
			continue
		}
		p.wait(p.ses.upper.Handle(m, to))
	}
	p.mu.Lock()
	if len(p.gathered) > 0 {
		p.answer.status, p.answer.body, p.gathered = http.StatusOK, wire.Batch(p.gathered), nil
	}
	p.mu.Unlock()
	return p.end(false, nil)
}

// member is a POST as the stream of one member of its batch.
type member struct {
	*post
	done bool // guarded by the session's mutex
}

// AnswerResult implements wire.ResultStream.
func (m *member) AnswerResult(id, result []byte) { m.Answer(wire.ResultAnswer(id, result)) }

// Fail is Answer, and so is Decline: a batch is answered as one.
func (m *member) Fail(_ int, msg []byte) { m.Answer(msg) }

// Decline is Answer.
func (m *member) Decline(msg []byte) { m.Answer(msg) }

// Move implements wire.MovingStream: what went before it may have happened here.
func (m *member) Move(error) bool { return false }

// Answer implements wire.Stream.
func (m *member) Answer(msg []byte) {
	p := m.post
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.done || p.answer.given {
		return
	}
	m.done = true
	switch {
	case msg == nil:
	case p.stream == nil:
		p.gathered = append(p.gathered, msg)
	default:
		p.stream.add(msg)
	}
}

// canPause reports whether the response may have to end before the answer, for the
// client to come back for that (2025-11-25, SEP-1699).
func (p *post) canPause() bool {
	polls := p.srv.cfg.Polls
	return polls != nil && polls() && p.ses.primes() && p.takes.sse
}

// waitApart is wait for a response that may have to end before that. left says that it
// has: what is left to wait for goes on by itself, and closes the POST as a stream.
func (p *post) waitApart(pending wire.Pending) (left bool) {
	s := p.srv
	if pending == nil || !s.requests.enter() { // at the server's end nobody can come back
		p.wait(pending)
		return false
	}
	over, asked := make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	p.pause.asked = asked
	p.mu.Unlock()
	go func() {
		defer s.requests.leave()
		p.wait(pending)
		p.settle()
		p.mu.Lock()
		p.pause.over = true
		left := p.pause.left
		p.mu.Unlock()
		if left {
			p.release()
		}
		close(over)
	}()
	select {
	case <-over:
		return false
	case <-asked:
	}
	<-p.writer.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause.left = !p.pause.over
	return p.pause.left
}

// Pause implements wire.Pauser. The client is told to come back no later than what it
// comes for is kept.
func (p *post) Pause(retry time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pause.asked == nil || p.answer.given {
		return
	}
	if p.stream == nil {
		p.openLocked()
	}
	p.stream.pause(min(retry, p.srv.cfg.StoreTime))
	select {
	case <-p.pause.asked: // before
	default:
		close(p.pause.asked)
	}
}

// cancel has a request of the modern era cancelled, once.
func (p *post) cancel() {
	p.mu.Lock()
	pending := p.cancels.pending
	if p.cancels.done || p.answer.given {
		pending = nil
	}
	p.cancels.done = true
	p.mu.Unlock()
	if pending != nil {
		pending.Cancel()
	}
}

// sweep does what time brings to a POST of the modern era.
func (p *post) sweep(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancels.unwatch == nil && !p.answer.given {
		p.cancels.unwatch = context.AfterFunc(p.r.Context(), p.cancel)
	}
	switch {
	case p.stream != nil:
		p.stream.keepAlive(now - ticks(p.srv.cfg.KeepAlive))
	case !p.answer.given && p.takes.sse && !p.listens:
		p.sweepLocked(now)
	}
}
