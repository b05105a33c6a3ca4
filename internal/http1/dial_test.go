//go:build unix

package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// echo is a server over TLS that answers what it gets, and a transport that connects to it by a dial of its own.
func echo(t *testing.T) (server *httptest.Server, l *Transport, dials *atomic.Int32, post func(body ...[]byte) string) {
	t.Helper()
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	dials = new(atomic.Int32)
	dialer := tls.Dialer{Config: server.Client().Transport.(*http.Transport).TLSClientConfig}
	l = newTransport(t)
	l.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		return dialer.DialContext(ctx, "tcp", addr)
	}
	prepared, err := Prepare(&http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: server.Listener.Addr().String(), Path: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	return server, l, dials, func(body ...[]byte) string {
		t.Helper()
		resp, err := l.Send(t.Context(), prepared, nil, body...)
		if err != nil {
			t.Fatal(err)
		}
		return textOf(t, resp)
	}
}

// A connection that is made elsewhere is used again, and a body of several parts arrives whole.
func TestTransportOverDial(t *testing.T) {
	_, _, dials, post := echo(t)
	for _, size := range []int{0, 10, oneWrite, 1 << 20} {
		a, b := bytes.Repeat([]byte("a"), size), bytes.Repeat([]byte("b"), size)
		if got := post(a, b, nil); got != string(a)+string(b) {
			t.Errorf("%d bytes came back, of twice %d", len(got), size)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for 4 requests", n)
	}
}

// A connection of TLS that the server has closed while it was idle is noticed before anything is written into it, however
// long the request is.
func TestTransportStaleConnectionOverDial(t *testing.T) {
	server, l, dials, post := echo(t)
	for i, body := range []string{"short", strings.Repeat("long", oneWrite)} {
		post()
		if n := dials.Load(); n != int32(i+1) {
			t.Fatalf("%d connections", n)
		}
		server.CloseClientConnections()
		c := l.idle[0]
		mcptest.Await(t, "the end of the connection", func() bool { return !c.alive() })
		if got := post([]byte(body)); got != body {
			t.Errorf("got %d bytes of %d", len(got), len(body))
		}
	}
}
