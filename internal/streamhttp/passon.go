package streamhttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Passed is a request that is served in another process.
type Passed struct {
	Why     error         // says where: what Open, Resume or who moved its stream said
	Body    []byte        // of a POST; not to be kept, nor changed
	Message *wire.Message // that it holds; nil: none, or a batch
	From    PeerInfo      // without its session
	Who     *asker.Who    // on whose behalf it comes; nil: nobody is known
	Since   time.Time     // when it was found first that it is served elsewhere
}

// ServePassed serves a request that another process has passed on: that one has looked at Host and Origin, and has let who
// in; nil: it lets in everybody. remote is the address that the request came from, for which it counts, and waits for how long it may wait for an
// approval; zero: for as long as any. It is passed on no
// further: one that is to be served elsewhere is answered with 421 and [httpserver.HeaderNotHere], and nothing else is done.
func (s *Server) ServePassed(w http.ResponseWriter, r *http.Request, who *asker.Who, remote string, waits time.Duration) {
	r = r.WithContext(r.Context()) // a copy, whose address is the client's
	r.RemoteAddr = remote
	if s.cfg.Authenticate != nil && who == nil {
		s.refuse(w, r, ReasonBearerMissing, http.StatusUnauthorized, "the process that has passed the request on lets in everybody, and this one does not")
		return
	}
	httpserver.Admit(w)
	from := PeerInfo{RemoteAddr: remote, who: who, passed: true}
	if waits > 0 {
		from.until = time.Now().Add(waits)
	}
	s.serve(w, r, from)
}

// movedEvery is how often it is looked whether requests are served elsewhere.
const movedEvery = 10 * time.Millisecond

// AwaitMoved waits until the POSTs that are to be served elsewhere as it is called are, or ctx ends: not those that come later, nor
// streams that do not end by themselves.
func (s *Server) AwaitMoved(ctx context.Context) {
	moving := s.moving.Swap(new(atomic.Int64))
	ticker := time.NewTicker(movedEvery)
	defer ticker.Stop()
	for moving.Load() > 0 && ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// movable reports whether a request that has met with an error is served elsewhere, or told so to who has passed it on.
func (s *Server) movable(from PeerInfo, err error) bool {
	_, elsewhere := errors.AsType[wire.ElsewhereError](err)
	return elsewhere && s.passes(from)
}

// passes reports whether a request can be served elsewhere, or who has passed it on be told so.
func (s *Server) passes(from PeerInfo) bool { return from.passed || s.cfg.PassOn != nil }

// passOn has a request served elsewhere, which counts as under way until that is over, and reports whether it is to be
// tried here once more.
func (s *Server) passOn(w http.ResponseWriter, r *http.Request, p Passed) (again bool) {
	if p.From.passed {
		w.Header().Set(httpserver.HeaderNotHere, notHere(p.Why))
		refuse(w, http.StatusMisdirectedRequest, "this process does not serve the request: "+p.Why.Error())
		return false
	}
	if r.Method == http.MethodGet || p.Message != nil && p.Message.Method == "subscriptions/listen" {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ending, cancel)()
		r = r.WithContext(ctx)
	}
	again = s.cfg.PassOn(w, r, p)
	if again && s.requests.closed() {
		s.refuseEnding(w, r, p.From)
		return false
	}
	return again
}

// notHere is what [httpserver.HeaderNotHere] says of a request that is served elsewhere.
func notHere(why error) string {
	if at, elsewhere := errors.AsType[wire.ElsewhereError](why); elsewhere && at.Gone() {
		return httpserver.Gone
	}
	return httpserver.Elsewhere
}

// passOn is [Server.passOn] of a POST.
func (p *post) passOn(why error, m *wire.Message) (again bool) {
	if p.body.since.IsZero() {
		p.body.since = time.Now()
		if m == nil || m.Method != "subscriptions/listen" {
			p.body.moves = p.srv.moving.Load()
			p.body.moves.Add(1)
		}
	}
	p.body.asked = p.body.asked || askAll(why)
	return p.srv.passOn(p.w, p.r, Passed{Why: why, Body: p.body.raw, Message: m, From: p.from, Who: p.from.who, Since: p.body.since})
}

func askAll(why error) bool {
	at, elsewhere := errors.AsType[wire.ElsewhereError](why)
	return elsewhere && at.AskAll()
}

// Move implements wire.MovingStream. The session that it would have begun does not.
func (p *post) Move(why error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.given || p.stream != nil || !p.srv.passes(p.from) || p.body.asked && askAll(why) {
		return false
	}
	p.closeLocked()
	p.answer.moved = why
	return true
}
