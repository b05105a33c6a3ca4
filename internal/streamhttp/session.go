package streamhttp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// maxGets is how many GET streams a session may have open. Only the newest is
	// written to; the others take over when it ends.
	maxGets = 8

	noSession = "exactly one Mcp-Session-Id is needed: begin with initialize, " +
		"of protocol revision 2024-11-05 to 2025-11-25, and send the id that its answer carries"
	// lifeLen is how long what tells a session from itself before a restart is: 65 random bits.
	lifeLen = 13
	// noPage begins the refusal of a GET that may be a browser's.
	noPage = "no page is here: this URL goes into the configuration of an MCP client. "
)

// owner is whose a session is: a request that comes from another party, on another URL or
// with another key finds no such session.
type owner struct {
	party
	run string // that its URL names
	key string // as ServerConfig.Key has it
}

func (s *Server) owner(from PeerInfo) owner {
	o := owner{party: partyOf(from), run: from.Run}
	if s.cfg.Key != nil {
		o.key = s.cfg.Key(from)
	}
	return o
}

// session is one client's. Its mutex guards all of its streams as well; no
// method of wire.Session is called while it is locked.
type session struct {
	srv     *Server
	id, tag string // 128 random bits in visible ASCII, and what stands for them in logs and event ids
	life    string // what event ids begin with: the tag, and what tells the session from itself before a restart
	owner   owner
	upper   wire.Session // set before anybody else can find the session
	version string       // likewise: the negotiated revision

	_       cacheLine
	mu      sync.Mutex // guards what follows
	ended   bool
	used    bool     // there was a request after initialize
	busy    int      // requests under way
	last    int64    // when a request ended last, or lost its client, in ticks
	waiting postList // the POSTs that may become event streams
	own     stream
	// streams are the POSTs that are or were event streams, by number; over
	// lists those of them that have ended, the oldest first.
	streams map[uint64]*stream
	over    []*stream
	numbers uint64 // the number of the stream opened last
	seq     uint64 // the number of the last event
	stored  int    // bytes kept for clients that are away
}

func newSession(srv *Server, of owner) *session {
	return makeSession(srv, of, rand.Text())
}

func makeSession(srv *Server, of owner, id string) *session {
	s := &session{srv: srv, owner: of, id: id, busy: 1, last: srv.clock.now.Load()}
	sum := sha256.Sum256([]byte(s.id))
	s.tag = hex.EncodeToString(sum[:4])
	s.life = s.tag + "-" + rand.Text()[:lifeLen]
	s.own = stream{srv: srv, mu: &s.mu, ses: s}
	return s
}

// initialize serves the one request that begins a session, or reports that it is to be tried once more.
func (p *post) initialize(m *wire.Message) (again bool) {
	s, from := p.srv, p.from
	of := s.owner(from)
	if !s.table.reserve(of.party) {
		p.w.Header().Set("Retry-After", "60")
		s.refuse(p.w, p.r, ReasonCrowded, http.StatusServiceUnavailable, "too many sessions: end some with DELETE, wait until idle ones end, or have the limit raised (--max-sessions; before a command --max-upstreams, or --share-upstream)")
		return false
	}
	ses := newSession(s, of)
	from.Session, from.ID = ses.tag, ses.id
	upper, err := s.cfg.Open(ownStream{ses}, from)
	if err != nil {
		s.table.release(of.party)
		if s.movable(p.from, err) {
			return p.passOn(err, m)
		}
		if why, ok := errors.AsType[*NotNowError](err); ok {
			s.cfg.tell(ReasonUnavailable, http.StatusServiceUnavailable, p.r)
			p.w.Header()["Retry-After"] = []string{retryAfter}
			writeJSON(p.w, http.StatusServiceUnavailable, wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, why.Text, nil))
			return false
		}
		s.refuse(p.w, p.r, ReasonNoRun, http.StatusBadRequest, err.Error())
		return false
	}
	ses.upper = upper
	p.ses, p.mu, p.whole = ses, &ses.mu, true
	p.wait(ses.upper.Handle(m, p))
	if ses.version = ses.upper.Version(); ses.version == "" { // nobody knows of it yet
		s.table.release(of.party)
		if ses.end() {
			ses.upper.Close()
		}
	} else {
		s.table.add(ses)
		p.w.Header()[headerSession] = []string{ses.id}
		s.cfg.Log.Debug("session begun", "session", ses.tag, "revision", ses.version)
	}
	again = p.end(true, m)
	if s.requests.closed() {
		s.end(ses, serverClosed)
	}
	return again
}

// session finds the session of a request and marks it busy; the caller must
// call its leave. Where there is none the request is answered, unless it is elsewhere, as the error says; somebody
// else's is none, nor is another URL's.
func (s *Server) session(w http.ResponseWriter, r *http.Request, from PeerInfo) (*session, error) {
	ids := r.Header[headerSession]
	if len(ids) != 1 {
		text := noSession
		if r.Method == http.MethodGet {
			text = noPage + "For a client, " + noSession
		}
		s.refuse(w, r, ReasonNoSession, http.StatusBadRequest, text)
		return nil, nil
	}
	ses, err := s.find(ids[0], from)
	for ses != nil && s.owns(from, &ses.owner) {
		if ses.enter() {
			httpserver.Admit(w)
			return ses, nil
		}
		if !ses.moved() { // it has ended
			break
		}
		ses, err = s.find(ids[0], from)
	}
	switch {
	case err == nil:
		s.refuse(w, r, ReasonSession, http.StatusNotFound, "no such session, or it has ended: begin a new one with initialize")
	case err == errEnding:
		s.refuseEnding(w, r, from)
	case s.movable(from, err):
		httpserver.Admit(w)
		return nil, err
	default:
		why, text := ReasonUnavailable, "the session cannot go on just now; try again"
		if err == errCrowded {
			why, text = ReasonCrowded, text+": "+err.Error()
		}
		w.Header()["Retry-After"] = []string{retryAfter}
		s.refuse(w, r, why, http.StatusServiceUnavailable, text)
	}
	return nil, nil
}

// find finds a session, whosever it is, and goes on with one that there is not any more; nil without an error: there is none.
func (s *Server) find(id string, from PeerInfo) (*session, error) {
	ses := s.table.find(id)
	switch {
	case ses == nil:
	case ses.moved():
		s.end(ses, movedOn)
		s.table.remove(ses) // who else ends it may not have come as far
		ses = nil
	case ses.runOver():
		s.end(ses, "its run was ended")
	}
	if ses != nil || s.cfg.Resume == nil {
		return ses, nil
	}
	return s.resume(id, from)
}

// resume goes on with a session that there was before the server was started anew; nil: there is none. Of several
// requests that ask for it the first has it made. The error is why it cannot go on just now.
func (s *Server) resume(id string, from PeerInfo) (*session, error) {
	if len(id) != len(rand.Text()) {
		return nil, nil
	}
	if s.requests.closed() {
		return nil, errEnding
	}
	a, mine := s.table.resuming(id)
	if !mine {
		<-a.done
		return s.table.find(id), a.err
	}
	defer s.table.resumed(id, a)
	var ses *session
	ses, a.err = s.resumed(id, from)
	return ses, a.err
}

func (s *Server) resumed(id string, from PeerInfo) (*session, error) {
	if ses := s.table.find(id); ses != nil {
		return ses, nil
	}
	of := s.owner(from)
	if !s.table.reserve(of.party) {
		return nil, errCrowded
	}
	ses := makeSession(s, of, id)
	ses.busy, ses.used = 0, true
	from.Session, from.ID = ses.tag, id
	upper, err := s.cfg.Resume(ownStream{ses}, from)
	if upper == nil {
		s.table.release(of.party)
		return nil, err
	}
	ses.upper, ses.version = upper, upper.Version()
	s.table.add(ses)
	if s.requests.closed() {
		s.end(ses, serverClosed)
		return nil, errEnding
	}
	return ses, nil
}

var (
	errCrowded = errors.New("there are too many sessions")
	errEnding  = errors.New("the server ends")
)

// again is a session that is gone on with just now.
type again struct {
	done chan struct{} // closed when that is done
	err  error         // why it cannot be
}

// owns reports whether a request may use a session, from whatever address it comes.
func (s *Server) owns(from PeerInfo, of *owner) bool {
	return of.who == from.Principal && of.run == from.Run && (s.cfg.Key == nil || of.key == s.cfg.Key(from))
}

// sessionOf is session for a request without a message, whose revision must be the session's.
// Nil: the request is answered, here or elsewhere.
func (s *Server) sessionOf(w http.ResponseWriter, r *http.Request, from PeerInfo) *session {
	ses, why := s.session(w, r, from)
	var since time.Time
	if why != nil {
		since = time.Now()
	}
	for why != nil && s.passOn(w, r, Passed{Why: why, From: from, Who: from.who, Since: since}) {
		ses, why = s.session(w, r, from)
	}
	if ses == nil {
		return nil
	}
	if fault := versionFault(r.Header, ses.version); fault != "" {
		ses.leave()
		s.refuse(w, r, ReasonHeader, http.StatusBadRequest, fault)
		return nil
	}
	return ses
}

// delete ends a session. Its client is told so once that is for good: one that is kept may go on until then.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	ses := s.sessionOf(w, r, from)
	if ses == nil {
		return
	}
	var err error
	if kept, ok := ses.upper.(interface{ Forget() error }); ok {
		err = kept.Forget()
	}
	ses.leave()
	switch {
	case err != nil && ses.moved(): // since it was found: it is ended where it goes on
		s.delete(w, r, from)
		return
	case err != nil:
		w.Header()["Retry-After"] = []string{retryAfter}
		s.refuse(w, r, ReasonUnavailable, http.StatusServiceUnavailable, "the session cannot be ended just now, and goes on; try again")
		return
	}
	s.end(ses, "its client ended it")
	w.WriteHeader(http.StatusNoContent)
}

// runOver reports whether the run of the session was ended.
func (s *session) runOver() bool {
	upper, ok := s.upper.(interface{ Over() bool })
	return ok && upper.Over()
}

// moved reports whether the session goes on elsewhere, with its run.
func (s *session) moved() bool {
	upper, ok := s.upper.(interface{ Moved() bool })
	return ok && upper.Moved()
}

// enter marks the beginning of a request; false: the session has ended.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.busy++
	s.used = true
	return true
}

// leave marks a request's end.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.last = s.srv.clock.now.Load()
}

// end marks the session as ended and its GET streams as done. It reports
// whether it was the first to do so.
func (s *session) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.srv.stores.add(-s.stored)
	s.ended = true
	s.own.over = true
	s.own.wakeAll()
	return true
}

// sweep does what time brings, and says why the session is to end, if it is.
func (s *session) sweep(now int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := &s.srv.cfg
	for p := s.waiting.newest; p != nil; {
		older := p.link.older // p leaves the list when it is opened
		p.sweepLocked(now)
		p = older
	}
	quiet := now - ticks(cfg.KeepAlive)
	s.own.keepAlive(quiet)
	for _, b := range s.streams {
		b.keepAlive(quiet)
		b.giveUp(now)
	}
	s.expire(now - ticks(cfg.StoreTime))
	switch {
	case s.busy > s.abandoned():
	case !s.used && now-s.last > ticks(cfg.Unused):
		return "its client has not used it (--session-unused)"
	case now-s.last > ticks(cfg.Idle):
		return "its client sends nothing any more (--session-idle)"
	}
	return ""
}

// abandoned is how many of the requests under way have lost their client: they
// keep no session alive.
func (s *session) abandoned() (n int) {
	for _, b := range s.streams {
		if !b.over && !b.attached() {
			n++
		}
	}
	return n
}

// openStream numbers a new event stream.
func (s *session) openStream() *stream {
	s.numbers++
	b := &stream{srv: s.srv, mu: &s.mu, ses: s, num: s.numbers}
	if s.streams == nil {
		s.streams = make(map[uint64]*stream)
	}
	s.streams[b.num] = b
	return b
}

// primes reports whether clients of the session understand events without
// data.
func (s *session) primes() bool { return s.version >= revisionPriming }

// ownStream is the session's own stream: what belongs to no request.
type ownStream struct{ s *session }

func (o ownStream) Send(msg []byte) bool {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return !o.s.ended && o.s.own.add(msg)
}

// Answer is Send: nobody asks on this stream.
func (o ownStream) Answer(msg []byte) {
	if msg != nil {
		o.Send(msg)
	}
}

func (o ownStream) Listening() bool {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return !o.s.ended && o.s.own.attached()
}

// get serves an event stream: the session's own, or the one that Last-Event-ID
// names, from there on.
func (s *Server) get(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	if !accept(r.Header).sse {
		refuse(w, http.StatusNotAcceptable, noPage+"A client's GET is for a stream: accept text/event-stream")
		return
	}
	ses := s.sessionOf(w, r, from)
	if ses == nil {
		return
	}
	defer ses.leave()
	out, fault := ses.listen(w, r.Header[headerLastEvent])
	switch {
	case out == nil && fault.text == "":
		w.WriteHeader(fault.status)
		return
	case out == nil:
		refuse(w, fault.status, fault.text)
		return
	}
	if out.stream == &ses.own {
		ses.upper.Listen()
	}
	out.run(r.Context())
}

// listen attaches a GET to the stream it asks for, or says how it is refused.
func (s *session) listen(w http.ResponseWriter, last []string) (*eventWriter, refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, seq, resumed := s.asksFor(last)
	switch {
	case b == nil: // no 404: that would say that the session is gone
		return nil, refusal{status: http.StatusBadRequest, text: s.notFound(last[0])}
	case b == &s.own && len(b.writers) >= maxGets:
		return nil, refusal{status: http.StatusConflict, text: "the session has too many GET streams open: close some"}
	}
	out := newEventWriter(b, w)
	if resumed {
		out.prime = false
		b.rewind(seq)
		defer s.room(0) // what the client has got counts from now on
	}
	switch {
	case b.done() && resumed: // event sources are to reconnect no more: they have all of it
		return nil, refusal{status: http.StatusNoContent}
	case b == &s.own:
		b.attach(out)
	default:
		b.takeOver(out)
	}
	return out, refusal{}
}

// table holds the sessions of a server and decides how many there may be.
type table struct {
	_        cacheLine
	mu       sync.RWMutex        // guards what follows
	sessions map[string]*session // by id
	again    map[string]*again   // that are gone on with just now
	quota    quota               // of sessions and those about to be
	_        cacheLine
}

func (t *table) init(cfg *ServerConfig) {
	t.quota = newQuota(cfg.Sessions, cfg.Share, cfg.PrincipalShare)
	t.sessions = make(map[string]*session)
}

// reserve makes room for a session and reports whether there is any.
func (t *table) reserve(by party) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quota.take(by)
}

// resuming enters that a session is gone on with, and reports whether nobody else does that.
func (t *table) resuming(id string) (a *again, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a = t.again[id]; a != nil {
		return a, false
	}
	if t.again == nil {
		t.again = make(map[string]*again)
	}
	a = &again{done: make(chan struct{})}
	t.again[id] = a
	return a, true
}

func (t *table) resumed(id string, a *again) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.again, id)
	close(a.done)
}

// release gives up what reserve made room for.
func (t *table) release(by party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quota.giveBack(by)
}

// add puts a session into the room reserved for it.
func (t *table) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[s.id] = s
}

func (t *table) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.id] == s {
		delete(t.sessions, s.id)
		t.quota.giveBack(s.owner.party)
	}
}

func (t *table) find(id string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sessions[id]
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.sessions)
}

// all appends all sessions to list.
func (t *table) all(list []*session) []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.sessions {
		list = append(list, s)
	}
	return list
}

// takeRefused returns how many sessions were refused since the last call.
func (t *table) takeRefused() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.quota.takeRefused()
}

// stores are what all sessions of a server keep for clients that are away.
type stores struct {
	limit int
	bytes atomic.Int64
	full  chan struct{} // there are more than the limit

	trimmed int // sessions that had to forget since the log was last told; for the sweeper alone
}

func (s *stores) init(limit int) { s.limit, s.full = limit, make(chan struct{}, 1) }

// add counts n more bytes, or fewer.
func (s *stores) add(n int) {
	if s.bytes.Add(int64(n)) <= int64(s.limit) || n <= 0 {
		return
	}
	select {
	case s.full <- struct{}{}:
	default:
	}
}

// keeps is how many bytes the session keeps, and when it was heard of last, in ticks.
func (s *session) keeps() (bytes int, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, s.last
}

// trim forgets what is oldest until the session keeps no more than most bytes, what a
// client has not got yet last. It reports whether it forgot anything.
func (s *session) trim(most int) (forgot bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsent := func(b *stream) bool { return len(b.records) > 0 && !b.attached() } // for a client that is away
	for !s.ended && s.stored > most && (s.forgetOldest() || s.forgetFirst(unsent)) {
		forgot = true
	}
	return forgot
}

// forgetFirst forgets the oldest of the first events of some streams, all of which have one, and
// reports whether there was any.
func (s *session) forgetFirst(some func(*stream) bool) bool {
	oldest := &s.own
	if !some(oldest) {
		oldest = nil
	}
	for _, b := range s.streams {
		if some(b) && (oldest == nil || b.records[0].seq < oldest.records[0].seq) {
			oldest = b
		}
	}
	if oldest != nil {
		oldest.forget(1)
	}
	return oldest != nil
}

// expire forgets what was sent, and the streams that ended, up to a time.
func (s *session) expire(until int64) {
	for len(s.over) > 0 && s.over[0].overAt < until && s.over[0].awaits == 0 {
		s.forgetStream(0)
	}
	s.own.expire(until)
	for _, b := range s.streams {
		b.expire(until)
	}
}

// room makes room for n more bytes in the store by forgetting what is oldest,
// and reports whether there is enough. What was not sent yet on a stream that
// is still open is never forgotten.
func (s *session) room(n int) bool {
	for s.stored+n > s.srv.cfg.Store && s.forgetOldest() {
	}
	return s.stored+n <= s.srv.cfg.Store
}

// keep counts n more bytes as kept for clients that are away, or fewer.
func (s *session) keep(n int) {
	s.stored += n
	if n != 0 && !s.ended {
		s.srv.stores.add(n)
	}
}

// forgetOldest forgets an event that was sent, or a stream that has ended, and reports
// whether there was one.
func (s *session) forgetOldest() bool {
	if i := slices.IndexFunc(s.over, func(b *stream) bool { return b.awaits == 0 }); i >= 0 {
		s.forgetStream(i)
		return true
	}
	return s.forgetFirst(func(b *stream) bool { return b.next > 0 })
}

// forgetStream forgets the stream at i of those that ended.
func (s *session) forgetStream(i int) {
	b := s.over[i]
	if i == 0 {
		s.over = s.over[1:]
	} else {
		s.over = slices.Delete(s.over, i, i+1)
	}
	if len(s.over) == 0 {
		s.over = nil
	}
	delete(s.streams, b.num)
	s.keep(-b.counted)
	b.counted, b.forgotten = 0, true
}
