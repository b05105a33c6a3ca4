package streamhttp

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// Transport is what carries the requests of clients.
type Transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// NewTransport returns the transport for a server: a [Lean] for plain http, and
// [http.Transport], HTTP/2 included, for https and where the environment
// (HTTP_PROXY and its like) names a proxy for that URL.
func NewTransport(u *url.URL) Transport {
	if u.Scheme == "http" {
		if via, err := http.ProxyFromEnvironment(&http.Request{URL: u}); via == nil && err == nil {
			return new(Lean)
		}
	}
	return newStandard()
}

// standard is net/http's transport, which tells whether anything was sent.
type standard struct{ *http.Transport }

func newStandard() standard {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return standard{&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     maxIdle,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
	}}
}

// RoundTrip sends a request. That no connection was got for it is the only
// certain sign that nothing was sent. A POST is not repeated by net/http unless
// that is as certain: it has no idempotency key.
func (t standard) RoundTrip(req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	resp, err := t.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil && !connected.Load() {
		return nil, notSent{err}
	}
	return resp, err
}
