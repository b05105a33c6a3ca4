package peers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Outcome is what became of a request that was to be passed on.
type Outcome int

const (
	// Lost is a request that was sent, or part of it, and has no answer: its lease has ended meanwhile, or the connection
	// broke. Whether it was acted on is not known.
	Lost Outcome = iota
	// NotSent is a request of which surely nothing was acted on: the other process could not be reached, or is another one
	// than the lease names.
	NotSent
	// Declined is one that the process has got that the lease names, which does not have what was asked for.
	Declined
	// Answered is a request of which an answer was written, whole or in part.
	Answered
	// Cancelled is a request whose client has gone before an answer came.
	Cancelled
)

// String is its name.
func (o Outcome) String() string {
	switch o {
	case Lost:
		return "lost"
	case NotSent:
		return "not sent"
	case Declined:
		return "declined"
	case Answered:
		return "answered"
	case Cancelled:
		return "cancelled"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// errLeaseOver is the cause of a pass that ends with the lease that it is for.
var errLeaseOver = errors.New("passing a request on: the lease of the other process has ended")

// attempts is how often a request is begun to be sent over connections that turn out to be closed already.
const attempts = 8

// shortBody is up to which size what is sent is copied. It fits into what the transport writes at once, with its header.
const shortBody = 2 << 10

// pass is a request that is passed on.
type pass struct {
	p     *Peers
	lease int64
	to    target
	ctx   context.Context // ends with the client, and by end
	end   context.CancelCauseFunc
	body  *outgoing // that is sent; nil: a copy is
}

// Pass passes a request on with its body, which was read already, and copies the answer as it comes: status, headers, body.
// It is sent at most once. The request's header loses what is for one connection alone, the credentials, and what looks
// like a header between processes; who says who asks. Pass returns once the answer has ended, and once body is not
// read any more.
//
// When the other process's lease ends, so does the request, and an event stream as if it had come to its end. Of
// any other answer that breaks off Pass panics with [http.ErrAbortHandler], so that the client hears of that.
func (p *Peers) Pass(w http.ResponseWriter, r *http.Request, to journal.Peer, body []byte, who Passenger) Outcome {
	head, err := who.encode()
	if err != nil {
		p.cfg.Log.Warn("a request cannot be passed on", "to", to.Holder, "error", err)
		http.Error(w, "too much is known of who asks", http.StatusRequestHeaderFieldsTooLarge)
		return Answered
	}
	x := p.enter(r.Context(), to)
	if x == nil {
		return NotSent
	}
	defer p.leave(x)
	resp, outcome := x.send(r, head, body)
	defer x.body.drop()
	if resp == nil {
		return outcome
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusMisdirectedRequest && resp.Header[headerNotHere] != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 1024) // so that the connection can be used again
		if resp.Header.Get(headerNotHere) == Elsewhere {
			return Declined
		}
		return NotSent
	}
	x.copyAnswer(w, r, resp)
	return Answered
}

// enter begins to watch the lease that a request is for; nil: nothing is passed on any more, or to that process.
func (p *Peers) enter(ctx context.Context, to journal.Peer) *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || to.Address == "" {
		return nil
	}
	x := &pass{p: p, lease: to.Lease, to: target{to.Address, to.Key}}
	x.ctx, x.end = context.WithCancelCause(ctx)
	p.passed.Add(1)
	p.passes[x] = struct{}{}
	if !p.watched {
		p.watched = true
		p.looks.Add(1)
		p.watchLocked()
	}
	return x
}

func (p *Peers) leave(x *pass) {
	x.end(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.passes, x)
	p.passed.Done()
	if len(p.passes) == 0 && p.watch.Stop() {
		p.unwatchLocked()
	}
}

// watchLocked sets the timer of look.
func (p *Peers) watchLocked() {
	if p.watch == nil {
		p.watch = time.AfterFunc(p.cfg.Every, p.look)
	} else {
		p.watch.Reset(p.cfg.Every)
	}
}

func (p *Peers) unwatchLocked() {
	p.watched = false
	p.looks.Done()
}

// look ends what is passed on to processes whose leases have ended. Where the database doesn't tell, that is not known.
func (p *Peers) look() {
	begun := p.underWay() // before: what is told is not older than any of them
	told, err := p.roster.look(context.Background())
	if err == nil {
		for _, x := range begun {
			if !told.leases[x.lease] {
				x.end(errLeaseOver)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.forgetLocked(told)
	}
	if len(p.passes) == 0 {
		p.unwatchLocked()
	} else {
		p.watchLocked()
	}
}

func (p *Peers) underWay() []*pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*pass, 0, len(p.passes))
	for x := range p.passes {
		all = append(all, x)
	}
	return all
}

// forgetLocked closes what is open to processes that have ended.
func (p *Peers) forgetLocked(told *census) {
	used := make(map[target]bool)
	for x := range p.passes {
		used[x.to] = true
	}
	for to, t := range p.transports {
		if !told.keys[to.key] && !used[to] {
			delete(p.transports, to)
			t.CloseIdleConnections()
		}
	}
}

// transport is what reaches the process that a request is passed on to.
func (x *pass) transport() *http.Transport {
	p, to := x.p, x.to
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transports[to]; t != nil {
		return t
	}
	t := &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, to) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     idleTime,
	}
	p.transports[to] = t
	return t
}

// send sends a request, and returns its answer, nil with what became of it where none has come.
//
// The transport sends nothing twice by itself, since each request has a body that it can't get again. A connection that
// the other side has closed before anything was written is given up here for another one.
func (x *pass) send(r *http.Request, head, body []byte) (*http.Response, Outcome) {
	transport := x.transport()
	for left := attempts; ; left-- {
		var seen sent
		request := x.request(httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{GotConn: seen.got}), r)
		request.Body, request.ContentLength = x.content(head, body), int64(len(head)+len(body))
		resp, err := transport.RoundTrip(request)
		switch {
		case err == nil:
			return resp, Answered
		case r.Context().Err() != nil:
			return nil, Cancelled
		case !seen.any() && seen.reused && x.ctx.Err() == nil && left > 1:
			x.body.drop()
			continue
		}
		x.p.cfg.Log.Debug("passing a request on", "address", x.to.address, "lease", x.lease, "sent", seen.any(), "error", err)
		if seen.any() {
			return nil, Lost
		}
		return nil, NotSent
	}
}

// content is the body of a request as it is sent. A short one is copied, to what the transport knows to be in memory: any
// other reader may block, so that the header is written before it, in a record of its own.
func (x *pass) content(head, body []byte) io.ReadCloser {
	if len(head)+len(body) > shortBody {
		x.body = &outgoing{parts: [2][]byte{head, body}}
		return x.body
	}
	return io.NopCloser(bytes.NewReader(slices.Concat(head, body)))
}

// request is what is sent in place of a request, without its body.
func (x *pass) request(ctx context.Context, r *http.Request) *http.Request {
	header := endToEnd(r.Header)
	header.Del("Authorization")
	header.Del("Expect") // the body is here
	header.Set(headerLease, strconv.FormatInt(x.lease, 10))
	if header["User-Agent"] == nil {
		header.Set("User-Agent", "") // else net/http's own
	}
	request := &http.Request{
		Method: r.Method, Host: r.Host, Header: header,
		URL: &url.URL{
			Scheme: "https", Host: x.to.address,
			Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
		},
	}
	return request.WithContext(ctx)
}

// sent is what is known of whether a request was sent.
type sent struct {
	conn   *conn // nil: there was none
	before int64 // what was written on it by then
	reused bool
}

func (s *sent) got(info httptrace.GotConnInfo) {
	s.conn, s.reused = info.Conn.(*conn), info.Reused
	s.before = s.conn.writes.Load()
}

// any reports whether something of the request may have been sent.
func (s *sent) any() bool { return s.conn != nil && s.conn.writes.Load() != s.before }

// outgoing is the body of a request as it is sent. The transport may want to read it even when the answer has ended.
type outgoing struct {
	mu      sync.Mutex // guards what follows
	parts   [2][]byte  // that are still to be read
	dropped bool
}

// drop ends the reading: what was to be read may be changed from now on. Of nil there is none.
func (o *outgoing) drop() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts, o.dropped = [2][]byte{}, true
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return 0, net.ErrClosed
	}
	for i := range o.parts {
		k := copy(p[n:], o.parts[i])
		o.parts[i] = o.parts[i][k:]
		n += k
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (o *outgoing) Close() error { return nil }

const (
	streamBuffer = 4 << 10  // of what may be idle for long
	answerBuffer = 32 << 10 // of what is there
)

// copyAnswer copies an answer as it comes. One without a length that ends once the pass is over has broken off, however it
// ends: the other process has seen the connection closing, and may have written an end before it was closed.
func (x *pass) copyAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	for name, values := range endToEnd(resp.Header) {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	flush, size := func() error { return nil }, answerBuffer
	if resp.ContentLength < 0 {
		flush, size = http.NewResponseController(w).Flush, streamBuffer
		if flush() != nil {
			return
		}
	}
	for buffer := make([]byte, min(size, max(int(resp.ContentLength), streamBuffer))); ; {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if _, failed := w.Write(buffer[:n]); failed != nil || flush() != nil {
				return // the client has gone
			}
		}
		switch {
		case err == io.EOF && (resp.ContentLength >= 0 || x.ctx.Err() == nil):
			return
		case err != nil && (isEvents(resp.Header) || r.Context().Err() != nil):
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

func isEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
