package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
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
	// Gone is Declined by a process that has had it until just now: where it is now is to be found out again.
	Gone
	// Answered is a request of which an answer was written, whole or in part.
	Answered
	// Broken is one that was answered by an event stream, which has broken off. What is still written follows what came.
	Broken
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
	case Declined, Gone:
		return "declined"
	case Answered:
		return "answered"
	case Broken:
		return "broken"
	case Cancelled:
		return "cancelled"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// The causes of a pass that ends before its answer does, though its client is there.
var (
	errLeaseOver = errors.New("passing a request on: the lease of the other process has ended")
	errSilent    = errors.New("passing a request on: the other process answers nothing")
	errEnding    = errors.New("passing a request on: this process is ending")
)

// pass is a request that is passed on.
type pass struct {
	p     *Peers
	to    journal.Peer
	route *route
	began time.Time
	ctx   context.Context // ends with the client, and by end
	end   context.CancelCauseFunc
}

// Pass passes a request on with its body, which was read already, and copies the answer as it comes: status, headers, body.
// It is sent at most once. The request's header loses what is for one connection alone, the credentials, and what looks
// like a header between processes; who says who asks. Pass returns once the answer has ended, and once body is not
// read any more.
//
// When the other process's lease ends, or it answers nothing any more, so does the request. Of an answer that breaks off, and
// is no event stream, Pass panics with [http.ErrAbortHandler], so that the client hears of that.
func (p *Peers) Pass(w http.ResponseWriter, r *http.Request, to journal.Peer, body []byte, who Passenger) Outcome {
	head, err := who.encode()
	if err != nil {
		p.cfg.Log.Warn("a request cannot be passed on", "to", to.Holder, "error", err)
		http.Error(w, "too much is known of who asks", http.StatusRequestHeaderFieldsTooLarge)
		return Answered
	}
	out, err := newRequest(r, body, to, head)
	if err != nil {
		http.Error(w, "the request cannot be passed on to the process that has what it is about: "+err.Error(), http.StatusBadRequest)
		return Answered
	}
	x := p.enter(r.Context(), to)
	if x == nil {
		return NotSent
	}
	defer p.leave(x)
	resp, outcome := x.send(r.Context(), out)
	if resp == nil {
		return outcome
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusMisdirectedRequest && resp.Header[headerNotHere] != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 1024) // so that the connection can be used again
		switch resp.Header.Get(headerNotHere) {
		case httpserver.Elsewhere:
			return Declined
		case httpserver.Gone:
			return Gone
		}
		return NotSent
	}
	return x.copyAnswer(w, r, resp)
}

// Ask asks another process for what is at a path, by a request of this process's own, and returns its answer, of so many
// bytes at most.
func (p *Peers) Ask(ctx context.Context, to journal.Peer, path string, who Passenger, most int64) ([]byte, error) {
	head, err := who.encode()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking another process: %w", err)
	}
	out, err := newRequest(r, nil, to, head)
	if err != nil {
		return nil, fmt.Errorf("asking another process: %w", err)
	}
	x := p.enter(ctx, to)
	if x == nil {
		return nil, errors.New("asking another process: nothing is passed on to it")
	}
	defer p.leave(x)
	resp, outcome := x.send(ctx, out)
	if resp == nil {
		return nil, errors.New("asking another process: the request is " + outcome.String())
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading what another process answers: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, errors.New("asking another process: it answers " + resp.Status)
	case int64(len(said)) > most:
		return nil, fmt.Errorf("reading what another process answers: it is longer than %d bytes", most)
	}
	return said, nil
}

// enter begins to watch the lease that a request is for; nil: nothing is passed on any more, or to that process.
func (p *Peers) enter(ctx context.Context, to journal.Peer) *pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || to.Address == "" {
		return nil
	}
	at := target{to.Address, to.Key}
	w := p.routes[at]
	if w == nil {
		w = p.newRoute(at)
		p.routes[at] = w
	}
	x := &pass{p: p, to: to, route: w, began: time.Now()}
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
			if !told.leases[x.to.Lease] {
				x.end(errLeaseOver)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.forgetLocked(told)
	}
	p.probeLocked()
	if len(p.passes) == 0 {
		p.unwatchLocked()
	} else {
		p.watchLocked()
	}
}

// probeLocked finds out of each process to which something was passed on a while ago whether it still answers: what lies
// between may acknowledge what it then loses.
func (p *Peers) probeLocked() {
	for x := range p.passes {
		if w := x.route; time.Since(x.began) > p.cfg.Every && !w.probing {
			w.probing = true
			p.looks.Go(func() { p.probe(w) })
		}
	}
}

// probe ends what was passed on to a process if that answers nothing.
func (p *Peers) probe(w *route) {
	began := time.Now()
	silent := p.silent(w)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.probing = false
	if !silent {
		return
	}
	for x := range p.passes {
		if x.route == w && x.began.Before(began) {
			x.end(errSilent)
		}
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
	used := make(map[*route]bool)
	for x := range p.passes {
		used[x.route] = true
	}
	for to, w := range p.routes {
		if !told.keys[to.key] && !used[w] && !w.probing {
			delete(p.routes, to)
			w.CloseIdleConnections()
		}
	}
}

// send sends a request of a client, and returns its answer, nil with what became of it where none has come.
func (x *pass) send(client context.Context, r *request) (*http.Response, Outcome) {
	resp, err := x.route.Send(x.ctx, r.Prepared, r.fields, r.who, r.body)
	switch {
	case err == nil:
		x.reached(true)
		return resp, Answered
	case client.Err() != nil:
		return nil, Cancelled
	}
	x.p.cfg.Log.Debug("passing a request on", "address", x.to.Address, "lease", x.to.Lease, "sent", !http1.NotSent(err), "error", err)
	if !http1.NotSent(err) {
		return nil, Lost
	}
	// Where this process has no lease the others rightly do not let it in.
	if x.ctx.Err() == nil && x.p.cfg.Trusts(x.p.cfg.Lease()) && x.reached(false) {
		x.p.cfg.Log.Warn("another process cannot be reached: nothing is passed on to it; check --advertise there, and that the port is reached (docs/replicas.md)",
			"to", x.to.Holder, "address", x.to.Address, "error", err)
	}
	return nil, NotSent
}

// warnEach is the least time between two warnings that one process cannot be reached.
const warnEach = time.Minute

// reached notes whether the other process was reached. It reports whether to warn that it is not: that has gone on for
// longer than one that was killed has its lease, and than what was begun by then may take.
func (x *pass) reached(yes bool) (warn bool) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	w, now := x.route, time.Now()
	switch {
	case yes:
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = now
	case now.Sub(w.failing) > x.p.roster.lasts+dialTime && now.Sub(w.warned) >= warnEach:
		w.warned = now
		return true
	}
	return false
}

const (
	streamBuffer = 4 << 10  // of what may be idle for long
	answerBuffer = 32 << 10 // of what is there
)

// copyAnswer copies an answer as it comes. One without a length that ends once the pass is over has broken off, however it
// ends: the other process has seen the connection closing, and may have written an end before it was closed.
func (x *pass) copyAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response) Outcome {
	for name, values := range endToEnd(resp.Header) {
		w.Header()[name] = values
	}
	if resp.ContentLength > 0 { // an answer like the one before has no header of its own for that
		w.Header()["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	}
	w.WriteHeader(resp.StatusCode)
	flush, size := func() error { return nil }, answerBuffer
	if resp.ContentLength < 0 {
		flush, size = http.NewResponseController(w).Flush, streamBuffer
		if flush() != nil {
			return Answered
		}
	}
	for buffer := make([]byte, min(size, max(int(resp.ContentLength), streamBuffer))); ; {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if _, failed := w.Write(buffer[:n]); failed != nil || flush() != nil {
				return Answered // the client has gone
			}
		}
		switch {
		case err == nil:
		case err == io.EOF && (resp.ContentLength >= 0 || x.ctx.Err() == nil), r.Context().Err() != nil:
			return Answered
		case isEvents(resp.Header):
			return Broken
		default:
			panic(http.ErrAbortHandler)
		}
	}
}

func isEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
