package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

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
	patience := time.After(30 * time.Second)
	for again := time.NewTicker(5 * time.Millisecond); server.Connections() > 0; {
		select {
		case <-again.C:
		case <-patience:
			t.Fatalf("%d connections are left", server.Connections())
		}
	}
}

// Headers beyond the limit are refused, and so is a connection
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
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("a connection without a handshake is not closed")
	}
}

// secured serves a handler over TLS, under a write limit of a tenth of a second, for clients of both protocols.
func secured(t *testing.T, h http.HandlerFunc) (server *Server, url string, clients map[string]*http.Client) {
	t.Helper()
	cfg, clients := mcptest.TLS(t)
	server = &Server{WriteTimeout: 100 * time.Millisecond, HeaderTimeout: 200 * time.Millisecond, TLSConfig: cfg}
	l := tcp{listenTCP(t)}
	servingAt(t, server, h, l)
	return server, "https://" + l.Addr().String(), clients
}

// TestTLSShutdown: idle connections of both protocols end with the server, and so does one that has not begun.
func TestTLSShutdown(t *testing.T) {
	t.Parallel()
	cfg, clients := mcptest.TLS(t)
	server, l := &Server{TLSConfig: cfg, HeaderTimeout: time.Hour}, tcp{listenTCP(t)}
	servingAt(t, server, echo, l)
	url := "https://" + l.Addr().String()
	for protocol, client := range clients {
		answer, err := client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
	defer stop()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if n := server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
