// Package balancer stands in front of several proxies for tests.
package balancer

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Start serves at a URL of its own, and sends each request to the URL that next says, as a Service of Kubernetes does that
// knows no sessions. Where nobody is there it answers 502. next is called by several goroutines at once.
func Start(t testing.TB, next func() string) (url string) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			to := parsed(next())
			p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server closes what it reads from with its first word, and a transport that still looks for its end takes that
		// for a fault, and breaks off the answer.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.Body = http.NoBody; len(body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close(); transport.CloseIdleConnections() })
	return web.URL + "/mcp"
}

// parsed is a URL that a client has used already.
func parsed(text string) *url.URL {
	u, _ := url.Parse(text)
	return u
}
