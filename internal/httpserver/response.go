package httpserver

import (
	"net/http"
	"time"
)

// serve has the handler answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	out := &response{ResponseWriter: w, conn: r.Context().Value(connKey{}).(*conn), last: len(r.TransferEncoding) > 0}
	if r.ProtoMajor > 1 {
		victim, ok := s.table.begin(out.conn)
		s.cutFor(victim, ok)
		if !ok { // without a body, which the client could keep waiting
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer s.table.end(out.conn)
		out.control = http.NewResponseController(w)
	}
	s.Handler.ServeHTTP(out, r)
	out.begin(http.StatusOK)
	if out.control != nil && out.wrote { // while it counts: the client may not let it come
		_ = out.FlushError()
	}
	out.arm() // for what net/http still holds
}

// response is an [http.ResponseWriter] of a [Server].
type response struct {
	http.ResponseWriter
	conn    *conn
	control *http.ResponseController // of HTTP/2, whose streams have deadlines of their own; nil: HTTP/1.1
	begun   bool                     // its status is set
	wrote   bool                     // it has a body
	// last says that the connection ends with the answer. It does behind a chunked request: that may have had a
	// Content-Length as well, which net/http drops and another reader may have gone by (RFC 9112, section 6.1).
	last bool
}

// Admit keeps the connection of a request that is let in: it is not closed for new ones. Who asks must be known by
// then, where that matters. Of another server's request nothing is noted.
func Admit(w http.ResponseWriter) {
	if r, ok := w.(*response); ok && !r.conn.admitted.Load() {
		r.conn.admitted.Store(true)
		r.conn.srv.table.known(r.conn)
	}
}

// Hold keeps the connection of a request until it is idle: for requests that are not to be lost although nobody knows
// who asks. What it carries counts for the share of its address as before.
func Hold(w http.ResponseWriter) {
	if r, ok := w.(*response); ok && !r.conn.admitted.Load() {
		r.conn.srv.table.hold(r.conn)
	}
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// begin notes what the answer is, and has the connection closed behind it if the server retires. What HTTP/2 says in
// place of the header, net/http knows.
func (w *response) begin(status int) {
	if w.begun {
		return
	}
	w.begun = true
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if w.conn.refused.Load() != refused {
		w.conn.refused.Store(refused)
	}
	if w.last || w.conn.srv.retiring.Load() {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(text []byte) (int, error) {
	w.begin(http.StatusOK)
	w.wrote = true
	w.arm()
	defer w.lift()
	return w.ResponseWriter.Write(text)
}

// FlushError implements what [http.ResponseController] flushes with.
func (w *response) FlushError() error {
	w.begin(http.StatusOK)
	w.arm()
	defer w.lift()
	return w.ResponseWriter.(interface{ FlushError() error }).FlushError()
}

// arm gives what is written next on an HTTP/2 stream its time. A deadline that passes between two writes would end the
// stream, so that lift takes it back.
func (w *response) arm() {
	if w.control != nil {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.conn.srv.WriteTimeout))
	}
}

func (w *response) lift() {
	if w.control != nil {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}
