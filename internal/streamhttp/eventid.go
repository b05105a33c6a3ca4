package streamhttp

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// eventID is what [stream.appendID] writes; the zero one is none.
type eventID struct {
	life        string
	stream, seq uint64
	asked       []byte // nil: none is said
}

func readEventID(id string) eventID {
	parts := strings.SplitN(id, ".", 5)
	if len(parts) < 3 || len(parts) > 4 {
		return eventID{}
	}
	stream, err := strconv.ParseUint(parts[1], 36, 64)
	seq, err2 := strconv.ParseUint(parts[2], 36, 64)
	if err != nil || err2 != nil {
		return eventID{}
	}
	e := eventID{life: parts[0], stream: stream, seq: seq}
	if len(parts) == 4 {
		if asked, err := base64.RawURLEncoding.DecodeString(parts[3]); err == nil && len(asked) <= maxAsked && wire.ValidID(asked) {
			e.asked = asked
		}
	}
	return e
}

// asksFor returns the stream that a GET with these Last-Event-IDs asks for, and, where it is resumed, behind which event; nil: there
// is none such.
func (s *session) asksFor(last []string) (b *stream, behind uint64, resumed bool) {
	if len(last) == 0 || last[0] == "" {
		return &s.own, 0, false
	}
	switch e := readEventID(last[0]); {
	case len(last) > 1:
		return nil, 0, false
	case s.before(e) && e.stream == 0: // what it had not delivered is lost
		return &s.own, 0, false
	case s.before(e):
		return s.unanswered(e.asked), 0, true
	default:
		return s.find(e), e.seq, true
	}
}

// find returns the stream of an event id; nil where the id is none of the session's, or its stream is forgotten.
func (s *session) find(e eventID) *stream {
	switch {
	case e.life != s.life || e.seq > s.seq:
		return nil
	case e.stream == 0:
		return &s.own
	}
	return s.streams[e.stream]
}

// before reports whether an event id is from before the session was gone on with.
func (s *session) before(e eventID) bool {
	return e.life != s.life && strings.HasPrefix(e.life, s.tag+"-")
}

// unanswered is a stream with the answer to a request that was under way before the session was gone on with; nil: nothing is
// known of such.
func (s *session) unanswered(asked []byte) *stream {
	if asked == nil || s.srv.cfg.Unanswered == nil {
		return nil
	}
	b := s.openStream()
	b.asked = asked
	b.append(s.srv.cfg.Unanswered(asked)) // also where the store is full: its client is here
	b.finish()
	return b
}

// notFound says of an event id that finds no stream why, and what to do.
func (s *session) notFound(id string) string {
	why := "this Last-Event-ID is none of the session's, or its stream is forgotten by now"
	if strings.HasPrefix(id, s.tag) && !strings.HasPrefix(id, s.life+".") {
		why = "this Last-Event-ID is from before fsm-proxy was restarted, or another process took the session over: what its stream had not delivered is lost"
	}
	return why + ". Open the session's stream anew, by a GET without it. A request that has no answer may have happened: look at what has become of it before you send it again"
}
