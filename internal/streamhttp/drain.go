package streamhttp

import (
	"context"
	"net/http"
)

// retryAfter is how long a client waits that is sent away, in seconds: by then
// a balancer knows better where to send it.
const retryAfter = "1"

// decline answers what belongs to no session and is not taken here now: 503, with a
// JSON-RPC error.
func decline(w http.ResponseWriter, answer []byte) {
	h := w.Header()
	h["Content-Type"] = valueJSON
	h["Retry-After"] = []string{retryAfter}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(answer)
}

// Decline implements wire.DecliningStream. In a session it is Answer: what the session
// waits for is here and nowhere else, and an error status would have some SDKs give it up.
func (p *post) Decline(msg []byte) {
	p.s.mu.Lock()
	p.declined = p.whole && p.box == nil && !p.answered
	p.s.mu.Unlock()
	p.Answer(msg)
}

// Decline is Answer: a batch is answered as one.
func (m *member) Decline(msg []byte) { m.Answer(msg) }

// Close refuses new requests, ends every session and its GET streams, and waits
// until all requests are answered or ctx ends; then the error is ctx's. What
// is kept for clients that have gone away is lost, and the log says how much.
func (s *Server) Close(ctx context.Context) error {
	if !s.requests.close() {
		return nil
	}
	close(s.stop)
	<-s.stopped
	all := s.table.all(nil)
	for _, ses := range all {
		s.end(ses, serverClosed)
	}
	s.solos.close()
	var err error
	select {
	case <-s.requests.empty:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if n := unfetched(all); n > 0 {
		s.cfg.Log.Warn("answers are lost: their clients had gone away, and have not come back for them", "answers", n)
	}
	return err
}

// unfetched counts the answers that no connection has taken.
func unfetched(all []*session) (n int) {
	for _, ses := range all {
		ses.mu.Lock()
		for _, b := range ses.streams {
			if b.over && !b.done() && !b.forgotten {
				n++
			}
		}
		ses.mu.Unlock()
	}
	return n
}
