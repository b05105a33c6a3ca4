package streamhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// leanRig is a LeanServer reached by raw bytes.
type leanRig struct {
	t    *testing.T
	srv  *LeanServer
	dial func() (net.Conn, error)
}

func newLeanRig(t *testing.T, srv *LeanServer, h http.HandlerFunc) *leanRig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startLeanRig(t, srv, h, tcp{l})
}

func startLeanRig(t *testing.T, srv *LeanServer, h http.HandlerFunc, l listener) *leanRig {
	srv.Handler = h
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return &leanRig{t, srv, l.dial}
}

func (r *leanRig) connect() *conn {
	r.t.Helper()
	c, err := r.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &conn{Conn: c, t: r.t, br: bufio.NewReader(c)}
}

// ended wants the connection's orderly end.
func (c *conn) ended() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.br); err != nil || len(rest) > 0 {
		c.t.Fatalf("got %q, %v; want the connection's end", rest, err)
	}
}

// echo says what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s %s %q %s", r.Method, r.URL.Path, r.Host, body, r.Header.Get("X"))
}

const okPost = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"

// TestRequestSmuggling: what could be read as two requests, or as one that ends
// elsewhere, is refused, and the connection with it.
func TestRequestSmuggling(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, echo)
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, raw string
		want      int
	}{
		{"Content-Length and chunked", post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"chunked and Content-Length", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400},
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", 400},
		{"the same length twice", post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", 400},
		{"a list of lengths", post + "Content-Length: 2, 2\r\n\r\nhi", 400},
		{"a negative length", post + "Content-Length: -1\r\n\r\n", 400},
		{"a length with a sign", post + "Content-Length: +2\r\n\r\nhi", 400},
		{"a hexadecimal length", post + "Content-Length: 0x2\r\n\r\nhi", 400},
		{"a huge length", post + "Content-Length: 99999999999999999999\r\n\r\nhi", 400},
		{"no length at all", post + "Content-Length:\r\n\r\nhi", 400},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		{"identity", post + "Transfer-Encoding: identity\r\n\r\n", 501},
		{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		{"chunked with a vertical tab", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400},
		{"a space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		{"a folded line", post + "X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"a folded first line", "POST / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
		{"a line without a colon", post + "Transfer-Encoding\r\n\r\n", 400},
		{"a line without a name", post + ": chunked\r\n\r\n", 400},
		{"NUL in a value", post + "X: a\x00b\r\n\r\n", 400},
		{"NUL in a name", post + "X\x00: ab\r\n\r\n", 400},
		{"a bare CR", post + "X: a\rTransfer-Encoding: chunked\r\n\r\n", 400},
		{"a bare CR before the end", post + "X: a\r\r\n\r\n", 400},
		{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"a host with a slash", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"a host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"no HTTP version", "GET /\r\n\r\n", 400},
		{"a malformed version", "GET / HTTP/1.x\r\nHost: h\r\n\r\n", 400},
		{"a malformed method", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"a control character in the path", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"TLS", "\x16\x03\x01\x02\x00\n\r\n\r\n", 400},
		{"two empty lines", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"an unknown expectation", post + "Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n", 417},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := r.connect()
			k.t = t
			p := k.send(c.raw + okPost).reply()
			if p.StatusCode != c.want || !p.Close || strings.Contains(p.body, "hi") {
				t.Errorf("got %s, close %t, %q; want %d", p.Status, p.Close, p.body, c.want)
			}
			k.ended()
			k = r.connect() // behind a request that is known
			k.t = t
			k.send(okPost).reply().want(t, 200, `"hi"`)
			if p := k.send(c.raw + okPost).reply(); p.StatusCode != c.want || !p.Close {
				t.Errorf("behind a good one: got %s, close %t; want %d", p.Status, p.Close, c.want)
			}
			k.ended()
		})
	}
}

// TestRequestsThatAreRead: each is answered, and the connection lives on.
func TestRequestsThatAreRead(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, echo)
	for _, c := range []struct{ name, raw, want string }{
		{"a body", okPost, `POST /a h "hi" `},
		{"no body", "GET /b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n", `GET /b h "" y`},
		{"bare line feeds", "POST /a HTTP/1.1\nHost: h\nContent-Length: 2\n\nhi", `POST /a h "hi" `},
		{"an empty line before", "\r\n" + okPost, `POST /a h "hi" `},
		{"white space about a length", "POST /a HTTP/1.1\r\nHost: h\r\ncontent-length:\t 2 \r\n\r\nhi", `POST /a h "hi" `},
		{"leading zeros", "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 002\r\n\r\nhi", `POST /a h "hi" `},
		{"an absolute URL", "POST http://o/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", `POST /a o "hi" `},
		{"chunks", "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\nX: y\r\n\r\n", `POST /a h "hi" `},
		{"a long header", "GET /b HTTP/1.1\r\nHost: h\r\nY: " + strings.Repeat("a", 4096-36) + "\r\nX: y\r\n\r\n", `GET /b h "" y`},
		{"a longer one", "GET /b HTTP/1.1\r\nHost: h\r\nY: " + strings.Repeat("a", 20_000) + "\r\nX: y\r\n\r\n", `GET /b h "" y`},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := r.connect()
			k.t = t
			for range 3 {
				p := k.send(c.raw).reply().want(t, 200, c.want)
				if p.Close || p.ContentLength != int64(len(p.body)) || p.Header.Get("Date") == "" {
					t.Errorf("got close %t, length %d, %v", p.Close, p.ContentLength, p.Header)
				}
			}
			k = r.connect() // all at once
			k.t = t
			k.send(strings.Repeat(c.raw, 3) + okPost)
			for range 3 {
				k.reply().want(t, 200, c.want)
			}
			k.reply().want(t, 200, `"hi"`)
			k = r.connect() // byte by byte
			k.t = t
			for i := range min(len(c.raw), 200) {
				k.send(c.raw[i : i+1])
			}
			k.send(c.raw[min(len(c.raw), 200):]).reply().want(t, 200, c.want)
		})
	}
}

// TestKnownHeads: a head that differs in its length alone is not parsed again,
// and any other difference is seen.
func TestKnownHeads(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, echo)
	k := r.connect()
	for i, body := range []string{"a", "bc", "", strings.Repeat("d", 5000), strings.Repeat("e", 123), "f"} {
		for _, x := range []string{"1", "1", "2"} {
			k.send(fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nX: %s\r\n\r\n%s", i/3, len(body), x, body))
			k.reply().want(t, 200, fmt.Sprintf("POST /%d h %q %s", i/3, body, x))
		}
	}
	k.send("POST / HTTP/1.1\r\nHost: h\r\nX: \r\nContent-Length: 3\r\n\r\nabc").reply().want(t, 200, `"abc"`)
	k.send("POST / HTTP/1.1\r\nHost: h\r\nX: \r\nContent-Length: 3,3\r\n\r\nabc").reply().want(t, 400, "")
	k.ended()
}

func TestConnectionsThatEnd(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/close":
			w.Header().Set("Connection", "close")
		case "/panic":
			panic("on purpose")
		case "/abort":
			_, _ = io.WriteString(w, strings.Repeat("x", 5000))
			panic(http.ErrAbortHandler)
		case "/short":
			w.Header().Set("Content-Length", "5")
		}
		_, _ = io.WriteString(w, "ok")
	})
	for _, c := range []struct {
		raw  string
		want string // what the whole answer holds
	}{
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Close\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"GET /close HTTP/1.1\r\nHost: h\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"GET / HTTP/1.0\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"GET /panic HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"GET /short HTTP/1.1\r\nHost: h\r\n\r\n", "\r\nok"},
		{"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc", "Connection: close\r\n\r\nok"},
		{"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", "Connection: close\r\n\r\nok"},
		{"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "Connection: close\r\n\r\nok"},
	} {
		k := r.connect()
		all, err := io.ReadAll(k.send(c.raw).br)
		if got := string(all); err != nil || !strings.HasSuffix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%q: got %q, %v; want %q", c.raw, got, err, c.want)
		}
	}
	all, _ := io.ReadAll(r.connect().send("GET /abort HTTP/1.1\r\nHost: h\r\n\r\n").br)
	if strings.Contains(string(all), "\r\n0\r\n") {
		t.Error("a handler that gave up was made to look complete")
	}
}

// TestBodyNotRead: what a handler leaves of a short body is not taken for a
// request.
func TestBodyNotRead(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	k := r.connect()
	for _, body := range []string{okPost, okPost + okPost, strings.Repeat(okPost, 500)} {
		raw := fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		go func() { _, _ = io.WriteString(k.Conn, raw) }()
		if p := k.reply(); p.StatusCode != http.StatusTeapot || p.Close {
			t.Errorf("got %s, close %t", p.Status, p.Close)
		}
	}
	if k.br.Buffered() > 0 {
		t.Error("more was answered than was asked")
	}
}

func TestExpectContinue(t *testing.T) {
	r := newLeanRig(t, &LeanServer{}, echo)
	k := r.connect()
	for range 2 {
		k.send("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
		if line, err := k.br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		if line, _ := k.br.ReadString('\n'); line != "\r\n" {
			t.Fatalf("got %q", line)
		}
		k.send("hi").reply().want(t, 200, `"hi"`)
	}
}

func TestIncomingBodyCutOff(t *testing.T) {
	failed := make(chan error, 1)
	r := newLeanRig(t, &LeanServer{}, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	})
	for _, raw := range []string{
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: y",
	} {
		k := r.connect().send(raw)
		_ = k.Conn.(*net.TCPConn).CloseWrite()
		if err := <-failed; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: got %v", raw, err)
		}
		if p := k.reply(); !p.Close {
			t.Errorf("%q: the connection was kept", raw)
		}
	}
	k := r.connect().send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab")
	if err := <-failed; err == nil || !k.reply().Close {
		t.Error("a malformed chunk was read")
	}
	k = r.connect().send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyy\r\n", 1000))
	if err := <-failed; err == nil || !k.reply().Close {
		t.Error("a huge trailer was read")
	}
	for _, trailer := range []string{"X\r\n\r\n", "X : y\r\n\r\n", " X: y\r\n\r\n", "X: y\n\r\n", "\n", "X: \x00\r\n\r\n"} {
		k = r.connect().send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + trailer + okPost)
		if err := <-failed; err == nil || !k.reply().Close {
			t.Errorf("the trailer %q was read", trailer)
		}
	}
}

func TestHugeHeaders(t *testing.T) {
	r := newLeanRig(t, &LeanServer{MaxHeaderBytes: 8 << 10}, echo)
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 20_000),
		"GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("X: a\r\n", 2000),
		"GET /" + strings.Repeat("a", 20_000),
	} {
		k := r.connect().send(raw)
		k.reply().want(t, http.StatusRequestHeaderFieldsTooLarge, "too large")
		k.ended()
	}
}

func TestLeanAnswers(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	r := newLeanRig(t, &LeanServer{}, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["B"], h["A"], h["C"] = []string{"x\r\nInjected: yes"}, []string{"1", "2"}, nil
		h["bad name"] = []string{"x"}
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
				t.Errorf("a body of 204: %v", err)
			}
		case "/declared":
			h.Set("Content-Length", strconv.Itoa(len(long)))
			_, _ = io.WriteString(w, long[:1])
			_, _ = io.WriteString(w, long[1:])
			if _, err := io.WriteString(w, "x"); err != http.ErrContentLength {
				t.Errorf("more than was declared: %v", err)
			}
		case "/long":
			_, _ = io.WriteString(w, long[:1000])
			_, _ = io.WriteString(w, long[1000:])
		case "/flushed":
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusTeapot)
			for _, part := range []string{"a", "", "b"} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		default:
			_, _ = io.WriteString(w, "short")
		}
	})
	k := r.connect()
	for _, c := range []struct {
		request, body string
		status        int
		length        int64
	}{
		{"GET /", "short", 200, 5}, {"HEAD /", "", 200, 5}, {"OPTIONS *", "short", 200, 5},
		{"GET /none", "", 204, 0}, {"HEAD /none", "", 204, -1},
		{"GET /declared", long, 200, int64(len(long))}, {"HEAD /declared", "", 200, int64(len(long))},
		{"GET /long", long, 200, -1}, {"HEAD /long", "", 200, int64(len(long))},
		{"GET /flushed", "ab", 202, -1}, {"HEAD /flushed", "", 202, -1},
	} {
		method, _, _ := strings.Cut(c.request, " ")
		k.send(c.request + " HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(k.br, &http.Request{Method: method})
		if err != nil {
			t.Fatal(c.request, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.status || string(body) != c.body || resp.ContentLength != c.length || resp.Close {
			t.Errorf("%s: got %s, %d bytes (length %d), close %t, %v", c.request, resp.Status, len(body), resp.ContentLength, resp.Close, err)
		}
		if resp.Header.Get("Injected") != "" || resp.Header.Get("B") != "x  Injected: yes" || len(resp.Header["A"]) != 2 {
			t.Errorf("%s: got %v", c.request, resp.Header)
		}
	}
	old := r.connect().send("GET /long HTTP/1.0\r\n\r\n").reply()
	if old.body != long || len(old.TransferEncoding) > 0 {
		t.Errorf("HTTP/1.0: got %d bytes, %v", len(old.body), old.TransferEncoding)
	}
}

// TestSlowloris: requests that trickle in are cut off, idle connections are
// kept for longer, and a handler may take its time.
func TestSlowloris(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		srv := &LeanServer{HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second}
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		r := startLeanRig(t, srv, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow":
				<-slow
			case "/deadline":
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute))
			}
			echo(w, r)
		}, l)
		for _, c := range []struct {
			raw         string
			least, most time.Duration
		}{
			{"", 10 * time.Second, 12 * time.Second},
			{"GET / HT", 10 * time.Second, 12 * time.Second},
			{"GET / HTTP/1.1\r\nHost: h\r\n", 10 * time.Second, 12 * time.Second},
			{"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhi", 10 * time.Second, 12 * time.Second},
			{"POST /deadline HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhi", time.Minute, 62 * time.Second},
		} {
			k := r.connect()
			_ = k.SetDeadline(time.Time{})
			start := time.Now()
			_, _ = io.Copy(io.Discard, k.send(c.raw))
			if took := time.Since(start); took < c.least || took > c.most {
				t.Errorf("%q: cut off after %v", c.raw, took)
			}
		}
		k := r.connect()
		_ = k.SetDeadline(time.Time{})
		k.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(time.Hour)
		close(slow)
		k.reply().want(t, 200, "/slow")
		time.Sleep(50 * time.Second)
		k.send(okPost).reply().want(t, 200, "hi")
		start := time.Now()
		k.ended()
		if took := time.Since(start); took < time.Minute || took > 62*time.Second {
			t.Errorf("idle: closed after %v", took)
		}
		k = r.connect() // a client that does not read
		_ = k.SetDeadline(time.Time{})
		k.send(okPost)
		time.Sleep(time.Minute)
		if _, err := k.br.ReadByte(); err != io.EOF {
			t.Errorf("a client that did not read for a minute got %v", err)
		}
	})
}

// TestClientOfAStreamGoesAway: the handler learns it from its context, a request
// that comes meanwhile is served after the stream, and the context stays whole.
func TestClientOfAStreamGoesAway(t *testing.T) {
	gone, end := make(chan struct{}, 1), make(chan struct{})
	r := newLeanRig(t, &LeanServer{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			echo(w, r)
			if r.Context().Err() != nil {
				t.Error("the next request's context has ended")
			}
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			gone <- struct{}{}
		case <-end:
		}
	})
	get := "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
	k := r.connect().send(get)
	if k.response().StatusCode != 200 {
		t.Fatal("no stream")
	}
	k.Close()
	<-gone
	k = r.connect().send(get) // watched by now, or not yet: both must do
	resp := k.response()
	k.send(okPost)
	time.AfterFunc(1500*time.Millisecond, func() { close(end) })
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	k.reply().want(t, 200, `"hi"`)
	k.send(get)
	_, _ = io.ReadAll(k.response().Body)
	k.send(okPost).reply().want(t, 200, `"hi"`)
}

func TestLeanShutdown(t *testing.T) {
	asked, go_ := make(chan struct{}), make(chan struct{})
	srv := &LeanServer{}
	r := newLeanRig(t, srv, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-go_
		}
		echo(w, r)
	})
	idle, fresh, silent, busy := r.connect(), r.connect(), r.connect(), r.connect()
	idle.send(okPost).reply().want(t, 200, "hi")
	busy.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	late, cancel := context.WithCancel(context.Background())
	cancel()
	if err := srv.Shutdown(late); err != context.Canceled {
		t.Errorf("with a request under way: %v", err)
	}
	idle.ended()
	if p := fresh.send(okPost).reply().want(t, 200, "hi"); !p.Close {
		t.Error("the answer to who had just connected does not say that it is the last one")
	}
	if c, err := r.dial(); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("still accepting")
		}
		c.Close()
	}
	close(go_)
	if p := busy.reply().want(t, 200, "/slow"); !p.Close {
		t.Error("the last answer does not say that it is")
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	silent.ended()
	if err := srv.Serve(&pipes{conns: make(chan net.Conn), done: make(chan struct{})}); err != http.ErrServerClosed {
		t.Errorf("serving after the end: %v", err)
	}
}

// unready is a listener that accepts nothing until it was told to end, for some time.
type unready struct {
	*net.TCPListener
	told  chan struct{}
	after time.Duration
	once  sync.Once
}

func (l *unready) dial() (net.Conn, error) { return tcp{l}.dial() }

func (l *unready) Accept() (net.Conn, error) {
	<-l.told
	<-time.After(l.after)
	l.after = 0
	return l.TCPListener.Accept()
}

func (l *unready) Close() error {
	l.once.Do(func() { close(l.told) })
	return l.TCPListener.Close()
}

// SetDeadline is too late at first, as on a machine that has much else to do.
func (l *unready) SetDeadline(t time.Time) error {
	first := false
	l.once.Do(func() { first = true })
	if !first {
		return l.TCPListener.SetDeadline(t)
	}
	defer close(l.told)
	return l.TCPListener.SetDeadline(time.Unix(1, 0))
}

// newUnreadyRig returns a rig whose server serves, and accepts nothing until it is told to end and then for some time.
func newUnreadyRig(t *testing.T, after time.Duration) *leanRig {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	srv := &LeanServer{}
	r := startLeanRig(t, srv, echo, &unready{TCPListener: l, told: make(chan struct{}), after: after})
	mcptest.Await(t, "serving", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return len(srv.listeners) > 0
	})
	return r
}

// TestShutdownAnswersWhatHasConnected: who has connected before the end, and waits to be accepted, is answered, however
// busy the machine is.
func TestShutdownAnswersWhatHasConnected(t *testing.T) {
	r := newUnreadyRig(t, 0)
	waits := r.connect()
	waits.send(okPost)
	if err := r.srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	waits.reply().want(t, 200, "hi")
	waits.ended()
}

// TestShutdownWithoutARequest: who is accepted late at the end, and then says nothing, holds up nobody for long.
func TestShutdownWithoutARequest(t *testing.T) {
	t.Parallel()
	r := newUnreadyRig(t, firstTime+firstTime/2)
	silent := r.connect()
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	if err := r.srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	silent.ended()
}

// failing is a listener whose first accepts fail.
type failing struct {
	listener
	left int
}

type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

func (l *failing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, passing{errors.New("too many open files")}
	}
	return l.listener.Accept()
}

func TestAcceptingAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := startLeanRig(t, &LeanServer{}, echo, &failing{tcp{l}, 2})
	r.connect().send(okPost).reply().want(t, 200, "hi")
}
