package peers

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// route is the way to another process.
type route struct {
	http1.Transport
	to target

	// Guarded by Peers.mu:
	probing bool      // whether the process still answers
	failing time.Time // since when it was not reached; zero: it was, or was not tried yet
	warned  time.Time // when it was said last that it cannot be reached
}

func (p *Peers) newRoute(to target) *route {
	w := &route{to: to}
	w.Dial, w.IdleTime = func(ctx context.Context, _ string) (net.Conn, error) { return p.dial(ctx, to) }, idleTime
	return w
}

// request is what is sent to another process.
type request struct {
	*http1.Prepared
	fields []http1.Field
	who    []byte // asks, in front of the body
	body   []byte
}

// newRequest makes what is sent in place of a request. The error is the client's: such a request cannot be sent.
func newRequest(r *http.Request, body []byte, to journal.Peer, who []byte) (*request, error) {
	prepared, err := http1.Prepare(&http.Request{
		Method: r.Method,
		URL: &url.URL{
			Scheme: "http", Host: cmp.Or(r.Host, to.Address), // TLS is the connection's
			Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
		},
	})
	if err != nil {
		return nil, err
	}
	fields := append(make([]http1.Field, 0, len(r.Header)+1), http1.Field{Name: headerLease, Value: strconv.FormatInt(to.Lease, 10)})
	for name, values := range endToEnd(r.Header) {
		switch name {
		case "Authorization", "Content-Length", "Expect", "Host": // the body is here
			continue
		}
		for _, value := range values {
			fields = append(fields, http1.Field{Name: name, Value: value})
		}
	}
	return &request{prepared, fields, who, body}, nil
}

var greeting = func() *http1.Prepared {
	p, err := http1.Prepare(&http.Request{
		Method: http.MethodHead, URL: &url.URL{Scheme: "http", Host: "peer", Path: "/"}, Header: http.Header{headerGreeting: {"1"}},
	})
	if err != nil {
		panic(err)
	}
	return p
}()

// probeEach is the least time between two attempts to reach a process that may be gone.
const probeEach = 250 * time.Millisecond

// silent reports whether the other process answers nothing for as long as [silence], over a connection that there is and
// over new ones: not even that it does not know this process, or that nobody listens any more. Connections on which nothing
// is answered are not used again.
func (p *Peers) silent(w *route) bool {
	began := time.Now()
	ctx, stop := context.WithTimeout(p.roster.ctx, silence)
	defer stop()
	if !unreached(w.greet(ctx)) {
		return false
	}
	w.CloseIdleConnections()
	for ctx.Err() == nil {
		c, err := p.dial(ctx, w.to)
		if err == nil {
			c.Close()
		}
		if !unreached(err) {
			return false
		}
		pause(ctx, probeEach)
	}
	return ctx.Err() == context.DeadlineExceeded && time.Since(began) < 2*silence // else this process has stood still
}

// greet asks the other process for an answer.
func (w *route) greet(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, silence/2)
	defer stop()
	resp, err := w.Send(ctx, greeting, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// unreached reports whether an error is that nothing has come from another machine.
func unreached(err error) bool {
	slow, ok := errors.AsType[net.Error](err)
	return ok && slow.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}
