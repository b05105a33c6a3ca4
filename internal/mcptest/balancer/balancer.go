// Package balancer stands in front of several proxies for tests.
package balancer

import (
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
	web := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			to := parsed(next())
			p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() { web.CloseClientConnections(); web.Close(); transport.CloseIdleConnections() })
	return web.URL + "/mcp"
}

// parsed is a URL that a client has used already.
func parsed(text string) *url.URL {
	u, _ := url.Parse(text)
	return u
}
