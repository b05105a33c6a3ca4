package streamhttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// A body larger than quickBody may take bodyTime: less than the write timeout,
// so that there is time to say that it was not enough.
const (
	quickBody = 64 << 10
	bodyTime  = 45 * time.Second
)

// body reads the request's body; false: it could not be read, and the request
// is answered.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.ContentLength > int64(s.cfg.MaxMessage) {
		s.tooLarge(w)
		return nil, false
	}
	d, _ := w.(interface{ SetReadDeadline(time.Time) error })
	if d != nil && (r.ContentLength < 0 || r.ContentLength > quickBody) {
		_ = d.SetReadDeadline(time.Now().Add(bodyTime))
	}
	raw, err := requestBody(r, s.cfg.MaxMessage)
	if d != nil && err == nil { // or it would be the time to wait for the answer, too
		_ = d.SetReadDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, errBodyTooLarge):
		s.tooLarge(w)
	case err != nil:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusBadRequest, "the body ended too early")
	default:
		return raw, true
	}
	return nil, false
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

// requestBody reads a body. What is large gets its room as it comes: a length
// alone is promised too easily.
func requestBody(r *http.Request, limit int) ([]byte, error) {
	if r.ContentLength >= 0 && r.ContentLength <= quickBody {
		raw := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, raw)
		return raw, err
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r.Body, int64(limit)+1))
	switch {
	case err == nil && n > int64(limit):
		err = errBodyTooLarge
	case err == nil && n < r.ContentLength:
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), err
}
