package streamhttp

import (
	"io"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// refusal is why a POST is refused before its message is looked at.
type refusal struct {
	reason    Reason
	status    int
	code      int // of the JSON-RPC error
	text      string
	header    bool // the header is at fault, as in each request of its client: the status stands in a session, too
	truncated bool // its body has ended too early
}

// maxPast is how much of a body is read past for the id of the message that it holds.
const maxPast = 64 << 20

// refuseMessage refuses a POST of a session, nil for none. scan has read what was read of
// its body; nil: nothing was.
//
// Who has a session waits for an answer by its id, and the Python SDK 1.x gives up the
// session, with all that it waits for, for a status that is an error and not 404. So the
// answer is a JSON-RPC error under that id, which is found without keeping the body, and
// the status 200, unless it is not known who waits for what. In the modern era the status
// stays, and the id is told as well: the Go SDK gives its connection up without. Who has no
// session gets plain text, from which SDKs begin anew.
func (s *Server) refuseMessage(w http.ResponseWriter, r *http.Request, takes accepts, ses *session, fault *refusal, scan *wire.IDScan) {
	switch fault.status {
	case http.StatusUnsupportedMediaType:
		w.Header()["Accept-Encoding"] = valueIdentity
	case http.StatusServiceUnavailable:
		w.Header()["Retry-After"] = []string{retryAfter}
	}
	if ses == nil && !s.modern(r.Header) {
		if !fault.header { // the body was not read to its end
			w.Header()["Connection"] = []string{"close"}
		}
		s.cfg.tell(fault.reason, fault.status, r)
		refuse(w, fault.status, fault.text)
		return
	}
	if scan == nil {
		scan = new(wire.IDScan)
		allowBodyTime(w, r)
	}
	var id []byte
	sure := false
	if !fault.truncated {
		id, sure = readPast(r, scan, int64(s.cfg.MaxMessage)+maxPast)
	}
	if !sure {
		w.Header()["Connection"] = []string{"close"}
	}
	status := fault.status
	if ses != nil && sure && !fault.header {
		status = http.StatusOK
		w.Header().Del("Retry-After")
	}
	s.cfg.tell(fault.reason, status, r)
	takes.write(w, status, wire.ErrorAnswer(id, fault.code, fault.text, nil))
}

// readPast reads the rest of a body without keeping it, at most so many bytes and until the
// read deadline, and returns the addressee of its message.
func readPast(r *http.Request, scan *wire.IDScan, most int64) (id []byte, sure bool) {
	if r.ContentLength > most {
		return nil, false
	}
	n, err := io.CopyBuffer(scan, io.LimitReader(r.Body, most+1), make([]byte, tinyBody))
	if err != nil || n > most {
		return nil, false
	}
	return scan.Addressee()
}

// write gives a JSON-RPC error to a client, as an event where it takes nothing else.
func (a accepts) write(w http.ResponseWriter, status int, answer []byte) {
	if status != http.StatusOK || a.json || !a.sse {
		writeAnswer(w, status, answer)
		return
	}
	w.Header()["Content-Type"] = valueEvents
	w.Header()["Cache-Control"] = valueNoCache
	_, _ = w.Write([]byte("event: message\ndata: " + string(wire.OneLine(answer)) + "\n\n"))
}
