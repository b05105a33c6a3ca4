package streamhttp

import (
	"net/http"
)

// maxGets is how many GET streams a session may have open. Only the newest is
// written to; the others take over when it ends.
const maxGets = 8

// noPage begins the refusal of a GET that may be a browser's.
const noPage = "no page is here: this URL goes into the configuration of an MCP client. "

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
	if out == nil {
		fault(w)
		return
	}
	if out.box == &ses.own {
		ses.upper.Listen()
	}
	out.run(r.Context())
}

// listen attaches a GET to the stream it asks for, or says how it is refused.
func (s *session) listen(w http.ResponseWriter, last []string) (*outlet, func(http.ResponseWriter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(last) == 0 || last[0] == "" {
		return s.listenOwn(w)
	}
	b, seq := s.find(last[0])
	if b == nil || len(last) > 1 {
		return nil, unknownEvent
	}
	if b == &s.own && len(b.outlets) >= maxGets {
		return nil, tooManyGets
	}
	out := newOutlet(b, w)
	out.prime = false
	b.rewind(seq)
	defer s.room(0) // what the client has got counts from now on
	switch {
	case b.done():
		return nil, nothingLeft
	case b == &s.own:
		b.attach(out)
	default:
		b.takeOver(out)
	}
	return out, nil
}

func (s *session) listenOwn(w http.ResponseWriter) (*outlet, func(http.ResponseWriter)) {
	if len(s.own.outlets) >= maxGets {
		return nil, tooManyGets
	}
	out := newOutlet(&s.own, w)
	s.own.attach(out)
	return out, nil
}

// unknownEvent is no 404: that would say that the session is gone.
func unknownEvent(w http.ResponseWriter) {
	refuse(w, http.StatusBadRequest, "this Last-Event-ID is none of the session's, or its stream is forgotten by now")
}

func tooManyGets(w http.ResponseWriter) {
	refuse(w, http.StatusConflict, "the session has too many GET streams open: close some")
}

// nothingLeft tells event sources to reconnect no more: the stream that they
// name has ended, and they have all of it.
func nothingLeft(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }
