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
func (s *Server) body(w http.ResponseWriter, r *http.Request, takes accepts, from PeerInfo, ses *session) (raw []byte, claim *bodyClaim, ok bool) {
	if r.ContentLength > int64(s.cfg.MaxMessage) {
		s.refuseMessage(w, r, takes, ses, s.tooLarge(), nil)
		return nil, nil, false
	}
	allowBodyTime(w, r)
	claim = s.claim(r, from, ses)
	raw, err := claim.read(r, s.cfg.MaxMessage)
	if err == nil {
		httpserver.Hold(w) // of who has neither session nor principal
		return raw, claim, true
	}
	var scan wire.IDScan
	_, _ = scan.Write(raw)
	claim.release()
	raw = nil // the rest of the body takes no memory
	var fault *refusal
	switch {
	case errors.Is(err, errBodyTooLarge):
		fault = s.tooLarge()
	case errors.Is(err, errNoRoom):
		fault = &refusal{reason: ReasonCrowded, status: http.StatusServiceUnavailable, code: wire.CodeInternal, text: noRoom}
	default:
		fault = &refusal{reason: ReasonMessage, status: http.StatusBadRequest, code: wire.CodeParse, text: "the body ended too early", truncated: true}
	}
	s.refuseMessage(w, r, takes, ses, fault, &scan)
	return nil, nil, false
}

const noRoom = "the bodies of other requests take the memory that there is for them: send the request again, or have --max-body-memory raised"

func (s *Server) tooLarge() *refusal {
	return &refusal{reason: ReasonTooLarge, status: http.StatusRequestEntityTooLarge, code: wire.CodeInvalidRequest,
		text: "a message may have " + strconv.Itoa(s.cfg.MaxMessage) + " bytes, and this one has more: send less, or have --max-message raised"}
}

// allowBodyTime gives a body bodyTime to arrive that is large, or of unknown length: the
// server's own read timeout is too short for it.
func allowBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > quickBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // net/http lifts it behind the body
	}
}

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
	s.cfg.tell(ReasonMessage, http.StatusBadRequest, r)
	writeAnswer(w, http.StatusBadRequest, faultAnswer(err))
}

var errBodyTooLarge = errors.New("reading a body: longer than the limit")

// read reads the body of a request, after an error as much of it as it has read. A buffer
// that counts grows as bytes come: a length alone is promised too easily. A nil claim counts
// nothing.
func (c *bodyClaim) read(r *http.Request, limit int) ([]byte, error) {
	if c == nil {
		raw := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, raw)
		return raw[:n], err
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
			return raw, errBodyTooLarge
		case int64(len(raw)) == r.ContentLength:
			return raw, nil
		case err == io.EOF && r.ContentLength < 0:
			return raw, nil
		case err == io.EOF:
			return raw, io.ErrUnexpectedEOF
		case err != nil:
			return raw, err
		}
		if len(raw) == cap(raw) {
			grown, err := c.enlarge(raw, min(2*cap(raw), most))
			if err != nil {
				return raw, err
			}
			raw = grown
		}
	}
}
