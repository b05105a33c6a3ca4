//go:build unix

package streamhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rawServer answers HTTP with the bytes that answer gives for a request. It
// counts connections and requests.
type rawServer struct {
	*testing.T
	ln       net.Listener
	answer   func(c net.Conn, n int, req *http.Request, body string)
	conns    atomic.Int32
	requests atomic.Int32
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
	closed   chan struct{} // gets an element for each connection that the client closed
}

func newRawServer(t *testing.T, answer func(c net.Conn, n int, req *http.Request, body string)) *rawServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{T: t, ln: ln, answer: answer, closed: make(chan struct{}, 1000)}
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *rawServer) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.conns.Add(1)
		s.mu.Lock()
		s.open = append(s.open, c)
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *rawServer) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			s.closed <- struct{}{}
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.answer(c, int(s.requests.Add(1)), req, string(body))
	}
}

func (s *rawServer) stop() {
	s.ln.Close()
	s.mu.Lock()
	for _, c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *rawServer) url() *url.URL {
	return &url.URL{Scheme: "http", Host: s.ln.Addr().String(), Path: "/mcp"}
}

func (s *rawServer) request(ctx context.Context, body string) *http.Request {
	return (&http.Request{
		Method: "POST", URL: s.url(), Header: http.Header{"X-A": {"1"}},
		Body: NewBody([]byte(body)), ContentLength: int64(len(body)),
	}).WithContext(ctx)
}

// sendReply writes an ordinary answer.
func sendReply(c net.Conn, header, body string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}

func newLean(t *testing.T) *Lean {
	l := new(Lean)
	t.Cleanup(l.CloseIdleConnections)
	return l
}

func leanText(t *testing.T, resp *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// post returns what the server answers to a POST.
func (s *rawServer) post(l *Lean, body string) string {
	s.Helper()
	resp, err := l.RoundTrip(s.request(s.Context(), body))
	if err != nil {
		s.Fatal(err)
	}
	return leanText(s.T, resp)
}

func TestLeanReusesConnections(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, n int, req *http.Request, body string) {
		if req.Host != c.LocalAddr().String() || req.Header.Get("X-A") != "1" || req.URL.Path != "/mcp" {
			t.Error("request:", req)
		}
		sendReply(c, "", fmt.Sprint(n, body))
	})
	l := newLean(t)
	for i := range 5 {
		if got := s.post(l, "x"); got != fmt.Sprint(i+1, "x") {
			t.Error(got)
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests", n)
	}
}

func TestLeanLargeBodies(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, body string) { sendReply(c, "", body) })
	l := newLean(t)
	big := strings.Repeat("0123456789", 100_000)
	for range 2 {
		if s.post(l, big) != big {
			t.Error("the body changed")
		}
	}
}

func TestLeanChunkedAndEmpty(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		if n == 1 {
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
			return
		}
		io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
	})
	l := newLean(t)
	for _, want := range []string{"abc", "", ""} {
		if got := s.post(l, ""); got != want {
			t.Errorf("%q", got)
		}
	}
	if s.conns.Load() != 1 {
		t.Error("connections:", s.conns.Load())
	}
}

// A connection that the server has closed while it was idle is noticed before
// anything is written into it.
func TestLeanStaleConnection(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		sendReply(c, "", "ok")
		if n == 1 {
			c.(*net.TCPConn).CloseWrite()
		}
	})
	l := newLean(t)
	for range 2 {
		s.post(l, "x")
		waitIdle(t, l, s)
	}
	if s.requests.Load() != 2 || s.conns.Load() != 2 {
		t.Errorf("%d requests on %d connections", s.requests.Load(), s.conns.Load())
	}
}

// waitIdle waits until something has come on the idle connection after the
// first request, without taking it.
func waitIdle(t *testing.T, l *Lean, s *rawServer) {
	t.Helper()
	if s.requests.Load() != 1 {
		return
	}
	c := l.take(s.url().Host)
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
	if c.turn.alive() {
		t.Error("the connection passes for alive")
	}
	l.put(c)
}

// Bytes that nobody asked for make an idle connection unusable: they would be
// taken for the next answer.
func TestLeanUnaskedBytes(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		sendReply(c, "", "ok")
		if n == 1 {
			sendReply(c, "", "forged")
		}
	})
	l := newLean(t)
	for range 2 {
		if got := s.post(l, "x"); got != "ok" {
			t.Error(got)
		}
		waitIdle(t, l, s)
	}
}

func TestLeanKeepAliveHint(t *testing.T) {
	for hint, kept := range map[string]time.Duration{
		"":                                   maxIdle,
		"Keep-Alive: timeout=5, max=100\r\n": maxIdle,
		"Keep-Alive: timeout=1\r\n":          500 * time.Millisecond,
		"Keep-Alive: timeout=0\r\n":          0,
		"Connection: close\r\n":              0,
	} {
		s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { sendReply(c, hint, "ok") })
		l := newLean(t)
		s.post(l, "x")
		c := l.take(s.url().Host)
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
func TestLeanClosesIdleConnections(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
		sendReply(c, "Keep-Alive: timeout=1\r\n", "ok")
	})
	l := newLean(t)
	s.post(l, "x")
	select {
	case <-s.closed:
	case <-time.After(20 * time.Second):
		t.Error("not closed")
	}
}

func TestLeanNobodyListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Body: NewBody([]byte("x"))}
	for _, rt := range []http.RoundTripper{newLean(t), newStandard()} {
		if _, err := rt.RoundTrip(req); !NotSent(err) {
			t.Errorf("%T: %v", rt, err)
		}
	}
}

// A POST into a connection that closes before the answer is never repeated.
func TestLeanNeverTwice(t *testing.T) {
	for _, first := range []string{"", "HTTP/1.1 200 O", "HTTP/1.1 200 OK\r\nContent-Le"} {
		s := newRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
			if n == 1 {
				sendReply(c, "", "ok")
				return
			}
			io.WriteString(c, first)
			c.Close()
		})
		l := newLean(t)
		s.post(l, "x")
		if _, err := l.RoundTrip(s.request(t.Context(), "x")); err == nil || NotSent(err) {
			t.Errorf("after %q: %v", first, err)
		}
		if n := s.requests.Load(); n != 2 {
			t.Errorf("%d requests reached the server", n)
		}
	}
}

func TestLeanTruncatedBody(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\nabc",
		"no end":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			io.WriteString(c, answer)
			c.Close()
		})
		resp, err := newLean(t).RoundTrip(s.request(t.Context(), "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(name, err)
		}
	}
}

func TestLeanEndlessHeader(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(c, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	if _, err := newLean(t).RoundTrip(s.request(t.Context(), "x")); err == nil || NotSent(err) || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}

// A server that refuses a long body without reading it is heard.
func TestLeanEarlyAnswer(t *testing.T) {
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
	body := NewBody(make([]byte, 16<<20))
	req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Body: body}
	resp, err := newLean(t).RoundTrip(req)
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

func TestLeanCancel(t *testing.T) {
	for _, head := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"} {
		got := make(chan struct{})
		s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			io.WriteString(c, head)
			close(got)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-got; cancel() }()
		resp, err := newLean(t).RoundTrip(s.request(ctx, "x"))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		if !errors.Is(err, context.Canceled) || NotSent(err) {
			t.Error(err)
		}
		<-s.closed // the connection is gone
	}
}

func TestLeanCancelledBefore(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { sendReply(c, "", "ok") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newLean(t).RoundTrip(s.request(ctx, "x")); !NotSent(err) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s.requests.Load() != 0 {
		t.Error("it was sent")
	}
}

func TestLeanParallel(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, body string) { sendReply(c, "", body) })
	l := newLean(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				want := fmt.Sprint(i, "/", j)
				resp, err := l.RoundTrip(s.request(t.Context(), want))
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
	if n := s.conns.Load(); n > 8 {
		t.Errorf("%d connections for 8 callers", n)
	}
}

func TestLeanPoolIsBounded(t *testing.T) {
	l := newLean(t)
	for range maxIdleConns + 10 {
		a, b := net.Pipe()
		defer b.Close()
		l.put(newLeanConn(a, "x:1"))
	}
	if n := len(l.idle); n != maxIdleConns {
		t.Error(n)
	}
}

// exchangeBench is one round trip as the client makes it.
func exchangeBench(b *testing.B, rt Transport, u *url.URL) {
	defer rt.CloseIdleConnections()
	header := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {"0123456789abcdef0123456789abcdef"}}
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req := (&http.Request{Method: "POST", URL: u, Header: header, Body: NewBody(body), ContentLength: int64(len(body))}).WithContext(ctx)
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
