package streamhttp

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// secured serves a handler over TLS, under a write limit of a tenth of a second,
// and returns clients for both protocols.
func secured(t *testing.T, h http.HandlerFunc) (server *LeanServer, url string, clients map[string]*http.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lender := httptest.NewTLSServer(nil) // of a certificate, and a client that trusts it
	t.Cleanup(lender.Close)
	server = &LeanServer{
		Handler: h, WriteTimeout: 100 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond,
		TLSConfig: &tls.Config{Certificates: lender.TLS.Certificates},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	clients = map[string]*http.Client{}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: lender.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
		t.Cleanup(transport.CloseIdleConnections)
		clients[protocol] = &http.Client{Transport: transport}
	}
	return server, "https://" + l.Addr().String(), clients
}

// An answer may come long after the write timeout, and so may a stream's next
// event: only a write that lasts is cut off.
func TestTLSWaits(t *testing.T) {
	t.Parallel()
	_, url, clients := secured(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		<-time.After(300 * time.Millisecond)
		for range 2 {
			_ = control.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(w, r.Proto+"\n")
			if err := control.Flush(); err != nil {
				t.Error(err)
			}
			<-time.After(300 * time.Millisecond)
		}
		_ = control.SetWriteDeadline(time.Time{})
	})
	for protocol, client := range clients {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(body) != strings.Repeat(protocol+"\n", 2) {
			t.Errorf("%s: %q, %v", protocol, body, err)
		}
	}
}

// A client that reads nothing is cut off, and one that sends nothing of its body.
func TestTLSCutsOff(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	_, url, clients := secured(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.ReadAll(r.Body)
			failed <- err
			return
		}
		var err error
		for chunk := make([]byte, 1<<20); err == nil; {
			_, err = w.Write(chunk)
		}
		failed <- err
	})
	for protocol, client := range clients {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		if err := <-failed; err == nil {
			t.Errorf("%s: all was written", protocol)
		}
		answer.Body.Close()
		body, send := io.Pipe()
		posted := make(chan struct{})
		go func() {
			defer close(posted)
			if answer, err := client.Post(url, "text/plain", body); err == nil {
				answer.Body.Close()
			}
		}()
		if err := <-failed; err == nil {
			t.Errorf("%s: a body was read that never came", protocol)
		}
		send.Close()
		<-posted
	}
}

// A server that retires says so with its next answers, and counts who is left.
func TestTLSRetires(t *testing.T) {
	t.Parallel()
	server, url, clients := secured(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") })
	for protocol, client := range clients {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body) // else the next request may go out on another connection
		answer.Body.Close()
	}
	if n := server.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
	server.Retire()
	for protocol, client := range clients {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	patience := time.After(10 * time.Second)
	for again := time.NewTicker(5 * time.Millisecond); server.Connections() > 0; {
		select {
		case <-again.C:
		case <-patience:
			t.Fatalf("%d connections are left", server.Connections())
		}
	}
}

// Headers beyond the limit are refused, as a LeanServer does; so is a connection
// that does not even begin.
func TestTLSHeaders(t *testing.T) {
	t.Parallel()
	_, url, clients := secured(t, func(w http.ResponseWriter, r *http.Request) {})
	for protocol, client := range clients {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
		answer, err := client.Do(req)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s: %s", protocol, answer.Status)
			}
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("a connection without a handshake is not closed")
	}
}

// lateConn is a connection that net/http takes its time to enter.
type lateConn struct {
	net.Conn
	ready chan struct{}
}

func (c lateConn) RemoteAddr() net.Addr { <-c.ready; return c.Conn.RemoteAddr() }

// A connection is handed over to the server for HTTP/2 as that ends, and is entered when the others were sent away. It
// is sent away too.
func TestTLSHandedOverAtTheEnd(t *testing.T) {
	t.Parallel()
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone := make(chan error, 1)
	go func() {
		client, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err == nil {
			defer client.Close()
			_, _ = io.WriteString(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			_, err = io.Copy(io.Discard, client)
		}
		gone <- err
	}()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	srv := &LeanServer{Handler: http.HandlerFunc(echo), TLSConfig: &tls.Config{Certificates: lender.TLS.Certificates}}
	srv.fill()
	late := lateConn{raw, make(chan struct{})}
	conn := tls.Server(late, srv.h2.config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	srv.h2.give(conn)
	mcptest.Await(t, "the connection is taken over", func() bool { return srv.h2.server.Connections() == 1 })
	srv.h2.server.RegisterOnShutdown(sync.OnceFunc(func() {
		<-time.After(100 * time.Millisecond) // beside it runs what sends the others away
		close(late.ready)
	}))
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
		srv.Close()
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
}
