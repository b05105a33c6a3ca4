//go:build unix

package http1

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A request that servers could take for another one, or for two, is not sent: no connection is made for it.
func TestTransportSendsNoSplitRequest(t *testing.T) {
	plain := url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/mcp"}
	with := func(change func(u *url.URL)) *url.URL { u := plain; change(&u); return &u }
	for name, req := range map[string]*http.Request{
		"value":    {Method: "POST", URL: &plain, Header: http.Header{"A": {"secret\r\nB: c"}}},
		"NUL":      {Method: "POST", URL: &plain, Header: http.Header{"A": {"secret\x00"}}},
		"name":     {Method: "POST", URL: &plain, Header: http.Header{"A: secret\r\nB": {"c"}}},
		"no name":  {Method: "POST", URL: &plain, Header: http.Header{"": {"secret"}}},
		"length":   {Method: "POST", URL: &plain, Header: http.Header{"Content-Length": {"4"}}},
		"chunked":  {Method: "POST", URL: &plain, Header: http.Header{"transfer-encoding": {"chunked"}}},
		"method":   {Method: "POST / HTTP/1.1\r\n", URL: &plain},
		"query":    {Method: "POST", URL: with(func(u *url.URL) { u.RawQuery = "a HTTP/1.1\r\nA: b" })},
		"opaque":   {Method: "POST", URL: with(func(u *url.URL) { u.Opaque = "/a b" })},
		"host":     {Method: "POST", URL: with(func(u *url.URL) { u.Host = "127.0.0.1:1\r\nA: b" })},
		"no host":  {Method: "POST", URL: with(func(u *url.URL) { u.Host = "" })},
		"idn host": {Method: "POST", URL: with(func(u *url.URL) { u.Host = "bücher.example" })},
	} {
		_, err := newTransport(t).RoundTrip(req)
		if !NotSent(err) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "connect") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
