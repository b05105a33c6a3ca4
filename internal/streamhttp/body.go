package streamhttp

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// body reads the body of a request that belongs to ses, nil for none; false: it could
// not be read, and the request is answered. The claim is to be released once the request
// is done with.
func (s *Server) body(w http.ResponseWriter, r *http.Request, from PeerInfo, ses *session) (raw []byte, claim *bodyClaim, ok bool) {
	if r.ContentLength > int64(s.cfg.MaxMessage) {
		s.tooLarge(w)
		return nil, nil, false
	}
	if r.ContentLength < 0 || r.ContentLength > quickBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // net/http lifts it behind the body
	}
	claim = s.claim(r, from, ses)
	raw, err := claim.read(r, s.cfg.MaxMessage)
	if err == nil {
		httpserver.Hold(w) // of who has neither session nor principal
		return raw, claim, true
	}
	claim.release()
	switch {
	case errors.Is(err, errBodyTooLarge):
		s.tooLarge(w)
	case errors.Is(err, errNoRoom):
		s.cfg.tell(ReasonCrowded, r)
		w.Header().Set("Connection", "close")
		decline(w, wire.ErrorAnswer(nil, wire.CodeInternal, noRoom, nil))
	default:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusBadRequest, "the body ended too early")
	}
	return nil, nil, false
}

const noRoom = "the bodies of other requests take the memory that there is for them: send the request again, or have --max-body-memory raised"

// claim begins to count a body, which takes nothing yet; nil: it is so small that it
// counts for nothing.
func (s *Server) claim(r *http.Request, from PeerInfo, ses *session) *bodyClaim {
	// Where nobody can have a session or a principal, there is nobody to keep room for.
	waits := ses != nil || from.Principal.Known() || s.cfg.Open == nil && s.cfg.Authenticate == nil
	if n := r.ContentLength; n >= 0 && (n <= tinyBody || waits && n <= quickBody) {
		return nil
	}
	c := &bodyClaim{budget: s.cfg.Bodies, waits: waits, patience: bodyWait, gone: r.Context().Done(), stop: s.stop}
	if ses != nil {
		c.holders = append(c.holders, ses)
	}
	by := partyOf(from)
	if by.who.Known() && s.cfg.PrincipalShare < s.cfg.Sessions {
		c.holders = append(c.holders, by.who)
	}
	if by.network.IsValid() && s.cfg.Share < s.cfg.Sessions {
		c.holders = append(c.holders, by.network)
	}
	return c
}

// message reads the one message of a body that belongs to no session; nil: it
// cannot be read, and the request is answered.
func (s *Server) message(w http.ResponseWriter, r *http.Request, raw []byte) *wire.Message {
	m, err := s.cfg.Limits.Read(raw, wire.FromClient)
	if err != nil {
		s.unread(w, r, err)
		return nil
	}
	return m
}

// unread answers a request without a session that holds no message.
func (s *Server) unread(w http.ResponseWriter, r *http.Request, err error) {
	s.cfg.tell(ReasonMessage, r)
	reject(w, err)
}

func (s *Server) tooLarge(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusRequestEntityTooLarge, "a message may have "+strconv.Itoa(s.cfg.MaxMessage)+" bytes")
}

var errBodyTooLarge = errors.New("reading a body: longer than the limit")

// read reads the body of a request. A buffer that counts grows as bytes come: a length
// alone is promised too easily. A nil claim counts nothing.
func (c *bodyClaim) read(r *http.Request, limit int) ([]byte, error) {
	if c == nil {
		raw := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, raw)
		return raw, err
	}
	most := limit + 1
	if r.ContentLength >= 0 {
		most = int(r.ContentLength)
	}
	raw := make([]byte, 0, min(most, tinyBody))
	for {
		n, err := r.Body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case len(raw) > limit:
			return nil, errBodyTooLarge
		case int64(len(raw)) == r.ContentLength:
			return raw, nil
		case err == io.EOF && r.ContentLength < 0:
			return raw, nil
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		if len(raw) == cap(raw) {
			if raw, err = c.enlarge(raw, min(2*cap(raw), most)); err != nil {
				return nil, err
			}
		}
	}
}
