package peers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
)

// route is the way to another process.
type route struct {
	http1.Transport
	asked bool // whether it still answers; guarded by Peers.mu
}

func (p *Peers) newRoute(to target) *route {
	w := &route{}
	w.Dial, w.Idle = func(ctx context.Context, _ string) (net.Conn, error) { return p.dial(ctx, to) }, idleTime
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
func newRequest(r *http.Request, body []byte, lease int64, who []byte) (*request, error) {
	prepared, err := http1.Prepare(&http.Request{
		Method: r.Method,
		URL: &url.URL{
			Scheme: "http", Host: r.Host, // TLS is the connection's
			Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery,
		},
	})
	if err != nil {
		return nil, err
	}
	fields := append(make([]http1.Field, 0, len(r.Header)+1), http1.Field{Name: headerLease, Value: strconv.FormatInt(lease, 10)})
	for name, values := range endToEnd(r.Header) {
		if name == "Authorization" || name == "Content-Length" || name == "Expect" { // the body is here
			continue
		}
		for _, value := range values {
			fields = append(fields, http1.Field{Name: name, Value: value})
		}
	}
	return &request{prepared, fields, who, body}, nil
}

// send sends a request, once at most, and returns its answer.
func (w *route) send(ctx context.Context, r *request) (*http.Response, error) {
	return w.Send(ctx, r.Prepared, r.fields, r.who, r.body)
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

// silent reports whether the other process answers nothing for as long as [silence], over a connection that there is and
// over new ones: not even that it does not know this process.
func (p *Peers) silent(w *route, to target) bool {
	ctx, stop := context.WithTimeout(p.roster.ctx, silence)
	defer stop()
	err := w.greet(ctx)
	for timedOut(err) && ctx.Err() == nil {
		err = p.knock(ctx, to)
	}
	return timedOut(err)
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

// knock connects to a process, and to no end.
func (p *Peers) knock(ctx context.Context, to target) error {
	c, err := p.dial(ctx, to)
	if err != nil {
		return err
	}
	return c.Close()
}

func timedOut(err error) bool {
	slow, ok := errors.AsType[net.Error](err)
	return ok && slow.Timeout()
}
