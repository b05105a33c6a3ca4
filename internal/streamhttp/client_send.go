package streamhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// maxRedirects is how many redirects of one request are followed.
const maxRedirects = 5

// sending is one request to be sent.
type sending struct {
	method string
	body   []byte
	lastID string // of a stream to be resumed; empty: none
	era    wire.Era
	fields []Field // of the header, besides those of all requests
}

// send sends one request and returns the answer, whatever its status. The error
// says whether it was sent.
func (c *Client) send(ctx context.Context, s sending) (*http.Response, *wire.CallError) {
	target, redirected := c.cfg.URL, false
	for range maxRedirects {
		resp, err := c.sendTo(ctx, target, s)
		if err != nil {
			err.Sent = err.Sent || redirected
			return nil, err
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 {
			return resp, nil
		}
		discard(resp)
		next, bad := redirect(target, resp)
		if bad != nil {
			return nil, lost(resp.StatusCode, bad)
		}
		target, redirected = next, true
	}
	return nil, lost(0, fmt.Errorf("the upstream redirected more than %d times", maxRedirects))
}

func (c *Client) sendTo(ctx context.Context, target *url.URL, s sending) (*http.Response, *wire.CallError) {
	auth, err := c.authorization(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	post, err := c.prepare(s.era, auth)
	if err != nil {
		return nil, unsent(err)
	}
	var resp *http.Response
	if lean, ok := c.cfg.Transport.(*Lean); ok && s.method == http.MethodPost && target == c.cfg.URL {
		resp, err = lean.do(&outgoing{ctx: ctx, addr: post.addr, method: s.method, head: post.head, fields: s.fields, body: s.body})
	} else {
		resp, err = c.cfg.Transport.RoundTrip(post.request(ctx, target, s))
	}
	if err != nil {
		return nil, &wire.CallError{Sent: !NotSent(err), Err: err}
	}
	if resp.StatusCode == http.StatusUnauthorized && c.cfg.Rejected != nil {
		c.cfg.Rejected(resp)
	}
	return resp, nil
}

// prepared is what all POSTs of an era have in common. It is never changed.
type prepared struct {
	header http.Header
	head   []byte // for a Lean: the request's head, up to the length
	addr   string // for a Lean
	auth   string
}

// prepare returns what POSTs of an era have in common.
func (c *Client) prepare(era wire.Era, auth string) (*prepared, error) {
	if p := c.prepared[era].Load(); p != nil && p.auth == auth {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &prepared{auth: auth, header: c.makeHeader(era, auth)}
	if _, ok := c.cfg.Transport.(*Lean); ok {
		var err error
		p.addr = hostPort(c.cfg.URL)
		if p.head, err = requestHead(p.request(context.Background(), c.cfg.URL, sending{method: http.MethodPost})); err != nil {
			return nil, err
		}
	}
	c.prepared[era].Store(p)
	return p, nil
}

// request makes a request. The header of a POST is shared: a transport does not
// change it.
func (p *prepared) request(ctx context.Context, target *url.URL, s sending) *http.Request {
	req := (&http.Request{
		Method: s.method, URL: target, Host: target.Host, Header: withFields(p.header, s.fields),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if s.method != http.MethodPost {
		req.Header = getHeader(p.header, s.lastID)
	}
	if body := s.body; body != nil {
		req.Body, req.ContentLength = NewBody(body), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return NewBody(body), nil }
	}
	return req
}

// getHeader is the header of a request that takes events, made of a POST's.
func getHeader(post http.Header, lastID string) http.Header {
	h := post.Clone()
	h.Del("Content-Type")
	h.Set("Accept", typeSSE)
	if lastID != "" {
		h.Set(headerLastEvent, lastID)
	}
	return h
}

// redirect returns where an answer wants the same request sent: 307 and 308
// within the same scheme and host. Anything else could carry the request, and
// the credentials that go with it, to somebody else.
func redirect(from *url.URL, resp *http.Response) (*url.URL, error) {
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, fmt.Errorf("the upstream answered HTTP %d without a usable Location", resp.StatusCode)
	}
	if to.Scheme != from.Scheme || to.Host != from.Host {
		return nil, fmt.Errorf("the upstream redirects to another host, %s://%s, which is not followed: give that URL if it is right", to.Scheme, to.Host)
	}
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil, fmt.Errorf("the upstream redirects with HTTP %d, which would change the request: give %s if that is right", resp.StatusCode, to.Path)
	}
	to.Fragment = ""
	return to, nil
}

// discard reads a short body to its end, so that the connection can be used
// again, and closes it.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// readAll reads a body of limit bytes at most.
func readAll(resp *http.Response, limit int) ([]byte, error) {
	defer resp.Body.Close()
	if n := resp.ContentLength; n >= 0 {
		if n > int64(limit) {
			return nil, fmt.Errorf("reading the answer: it has %d bytes, %d are allowed", n, limit)
		}
		return readExactly(resp.Body, int(n))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && len(raw) > limit {
		return nil, fmt.Errorf("reading the answer: it has more than %d bytes", limit)
	}
	return raw, err
}

// readExactly reads n bytes and sees the end behind them.
func readExactly(r io.Reader, n int) ([]byte, error) {
	raw := make([]byte, n+1)
	got := 0
	for got <= n {
		m, err := r.Read(raw[got:])
		got += m
		if err == io.EOF && got == n {
			return raw[:n:n], nil
		}
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("reading the answer: more than its %d bytes", n)
}
