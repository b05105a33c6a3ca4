//go:build unix

package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func requestTo(ctx context.Context, s *mcptest.RawServer, body string) *http.Request {
	return (&http.Request{
		Method: "POST", URL: s.URL(), Header: http.Header{"X-A": {"1"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(ctx)
}

func newTransport(t *testing.T) *Transport {
	l := new(Transport)
	t.Cleanup(l.CloseIdleConnections)
	return l
}

func textOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// post returns what the server answers to a POST.
func post(t *testing.T, s *mcptest.RawServer, l *Transport, body string) string {
	t.Helper()
	resp, err := l.RoundTrip(requestTo(t.Context(), s, body))
	if err != nil {
		t.Fatal(err)
	}
	return textOf(t, resp)
}

func TestTransportReusesConnections(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, req *http.Request, body string) {
		if req.Host != c.LocalAddr().String() || req.Header.Get("X-A") != "1" || req.URL.Path != "/mcp" {
			t.Error("request:", req)
		}
		mcptest.RawReply(c, "", fmt.Sprint(n, body))
	})
	l := newTransport(t)
	for i := range 5 {
		if got := post(t, s, l, "x"); got != fmt.Sprint(i+1, "x") {
			t.Error(got)
		}
	}
	if n := s.Conns.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests", n)
	}
}

func TestTransportLargeBodies(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, body string) { mcptest.RawReply(c, "", body) })
	l := newTransport(t)
	big := strings.Repeat("0123456789", 100_000)
	for range 2 {
		if post(t, s, l, big) != big {
			t.Error("the body changed")
		}
	}
}

func TestTransportChunkedAndEmpty(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		if n == 1 {
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
			return
		}
		io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	})
	l := newTransport(t)
	for _, want := range []string{"abc", "", ""} {
		if got := post(t, s, l, ""); got != want {
			t.Errorf("%q", got)
		}
	}
	if s.Conns.Load() != 1 {
		t.Error("connections:", s.Conns.Load())
	}
}

// A connection that the server has closed while it was idle is noticed before
// anything is written into it.
func TestTransportStaleConnection(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		mcptest.RawReply(c, "", "ok")
		if n == 1 {
			c.(*net.TCPConn).CloseWrite()
		}
	})
	l := newTransport(t)
	for range 2 {
		post(t, s, l, "x")
		waitIdle(t, l, s)
	}
	if s.Requests.Load() != 2 || s.Conns.Load() != 2 {
		t.Errorf("%d requests on %d connections", s.Requests.Load(), s.Conns.Load())
	}
}

// waitIdle waits until something has come on the idle connection after the
// first request, without taking it.
func waitIdle(t *testing.T, l *Transport, s *mcptest.RawServer) {
	t.Helper()
	if s.Requests.Load() != 1 {
		return
	}
	c := l.take(s.URL().Host)
	if c == nil {
		return // it was seen at once
	}
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return err != syscall.EAGAIN
	})
	if c.alive() {
		t.Error("the connection passes for alive")
	}
	l.put(c)
}

// Bytes that nobody asked for make an idle connection unusable: they would be
// taken for the next answer.
func TestTransportUnaskedBytes(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		mcptest.RawReply(c, "", "ok")
		if n == 1 {
			mcptest.RawReply(c, "", "forged")
		}
	})
	l := newTransport(t)
	for range 2 {
		if got := post(t, s, l, "x"); got != "ok" {
			t.Error(got)
		}
		waitIdle(t, l, s)
	}
}

func TestTransportKeepAliveHint(t *testing.T) {
	for hint, kept := range map[string]time.Duration{
		"":                                   defaultIdle,
		"Keep-Alive: timeout=5, max=100\r\n": defaultIdle,
		"Keep-Alive: timeout=1\r\n":          500 * time.Millisecond,
		"Keep-Alive: timeout=0\r\n":          0,
		"Connection: close\r\n":              0,
	} {
		s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { mcptest.RawReply(c, hint, "ok") })
		l := newTransport(t)
		post(t, s, l, "x")
		c := l.take(s.URL().Host)
		if kept == 0 {
			if c != nil {
				t.Errorf("%q: kept", hint)
			}
			continue
		}
		if c == nil || c.idle != kept {
			t.Errorf("%q: %+v", hint, c)
		}
		c.Close()
	}
}

// Ours is the side that closes an idle connection first.
func TestTransportClosesIdleConnections(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
		mcptest.RawReply(c, "Keep-Alive: timeout=1\r\n", "ok")
	})
	l := newTransport(t)
	post(t, s, l, "x")
	select {
	case <-s.Closed:
	case <-time.After(30 * time.Second):
		t.Error("not closed")
	}
}

func TestTransportNobodyListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Body: io.NopCloser(strings.NewReader("x"))}
	for _, rt := range []http.RoundTripper{newTransport(t), NewStandard()} {
		if _, err := rt.RoundTrip(req); !NotSent(err) {
			t.Errorf("%T: %v", rt, err)
		}
	}
}

// A POST into a connection that closes before the answer is never repeated.
func TestTransportNeverTwice(t *testing.T) {
	for _, first := range []string{"", "HTTP/1.1 200 O", "HTTP/1.1 200 OK\r\nContent-Le"} {
		s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
			if n == 1 {
				mcptest.RawReply(c, "", "ok")
				return
			}
			io.WriteString(c, first)
			c.Close()
		})
		l := newTransport(t)
		post(t, s, l, "x")
		if _, err := l.RoundTrip(requestTo(t.Context(), s, "x")); err == nil || NotSent(err) {
			t.Errorf("after %q: %v", first, err)
		}
		if n := s.Requests.Load(); n != 2 {
			t.Errorf("%d requests reached the server", n)
		}
	}
}

func TestTransportTruncatedBody(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\nabc",
		"no end":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			io.WriteString(c, answer)
			c.Close()
		})
		resp, err := newTransport(t).RoundTrip(requestTo(t.Context(), s, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(name, err)
		}
	}
}

func TestTransportEndlessHeader(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(c, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	if _, err := newTransport(t).RoundTrip(requestTo(t.Context(), s, "x")); err == nil || NotSent(err) || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}

// A server that refuses a long body without reading it is heard.
func TestTransportEarlyAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		io.CopyN(io.Discard, c, 1000)
		c.(*net.TCPConn).SetLinger(-1)
		c.Close()
	})
	body := io.NopCloser(bytes.NewReader(make([]byte, 16<<20)))
	req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Body: body}
	resp, err := newTransport(t).RoundTrip(req)
	if err != nil { // the reset may discard what was received
		if NotSent(err) {
			t.Error(err)
		}
		return
	}
	if resp.StatusCode != 413 {
		t.Error(resp.Status)
	}
	resp.Body.Close()
}

func TestTransportCancel(t *testing.T) {
	for _, head := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"} {
		got := make(chan struct{})
		s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			io.WriteString(c, head)
			close(got)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-got; cancel() }()
		resp, err := newTransport(t).RoundTrip(requestTo(ctx, s, "x"))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		if !errors.Is(err, context.Canceled) || NotSent(err) {
			t.Error(err)
		}
		<-s.Closed // the connection is gone
	}
}

func TestTransportCancelledBefore(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { mcptest.RawReply(c, "", "ok") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTransport(t).RoundTrip(requestTo(ctx, s, "x")); !NotSent(err) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s.Requests.Load() != 0 {
		t.Error("it was sent")
	}
}

func TestTransportParallel(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, body string) { mcptest.RawReply(c, "", body) })
	l := newTransport(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				want := fmt.Sprint(i, "/", j)
				resp, err := l.RoundTrip(requestTo(t.Context(), s, want))
				if err != nil {
					t.Error(err)
					return
				}
				raw, _ := io.ReadAll(resp.Body)
				if string(raw) != want {
					t.Errorf("%q, want %q", raw, want)
				}
			}
		})
	}
	wg.Wait()
	if n := s.Conns.Load(); n > 8 {
		t.Errorf("%d connections for 8 callers", n)
	}
}

func TestTransportPoolIsBounded(t *testing.T) {
	l := newTransport(t)
	for range maxIdleConns + 10 {
		a, b := net.Pipe()
		defer b.Close()
		l.put(newConn(a, "x:1", defaultIdle))
	}
	if n := len(l.idle); n != maxIdleConns {
		t.Error(n)
	}
}

// exchangeBench is one round trip as the client makes it.
func exchangeBench(b *testing.B, rt RoundTripper, u *url.URL) {
	defer rt.CloseIdleConnections()
	header := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {"0123456789abcdef0123456789abcdef"}}
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req := (&http.Request{Method: "POST", URL: u, Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}).WithContext(ctx)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
			resp.Body.Close()
		}
	})
}
