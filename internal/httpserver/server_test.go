package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Server reached by raw bytes.
type rig struct {
	t    *testing.T
	srv  *Server
	dial func() (net.Conn, error)
}

// serving serves a handler on a loopback address.
func serving(t *testing.T, srv *Server, h http.HandlerFunc) *rig {
	t.Helper()
	return servingAt(t, srv, h, tcp{listenTCP(t)})
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type dialer interface {
	net.Listener
	Dial() (net.Conn, error)
}

func servingAt(t *testing.T, srv *Server, h http.HandlerFunc, l dialer) *rig {
	srv.Handler = h
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return &rig{t, srv, l.Dial}
}

// tcp listens on loopback.
type tcp struct{ net.Listener }

func (l tcp) Dial() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }

// SetDeadline has the server end it as it ends a TCP listener.
func (l tcp) SetDeadline(t time.Time) error {
	return l.Listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(t)
}

// client is a client's connection.
type client struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (r *rig) connect() *client {
	r.t.Helper()
	c, err := r.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{c, r.t, bufio.NewReader(c)}
}

func (c *client) send(raw string) *client {
	c.t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// want reads an answer, and wants its status and what its body holds.
func (c *client) want(status int, body string) *http.Response {
	c.t.Helper()
	answer, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatal("reading an answer: ", err)
	}
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status || !strings.Contains(string(got), body) {
		c.t.Fatalf("got %s, %q, %v; want %d with %q", answer.Status, got, err, status, body)
	}
	return answer
}

// ended wants the connection's orderly end.
func (c *client) ended() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.br); err != nil || len(rest) > 0 {
		c.t.Fatalf("got %q, %v; want the connection's end", rest, err)
	}
}

// gone wants the connection's end, orderly or not.
func (c *client) gone() {
	c.t.Helper()
	rest, err := io.ReadAll(c.br)
	if e, ok := errors.AsType[net.Error](err); len(rest) > 0 || ok && e.Timeout() {
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

// TestRequestSmuggling: what could be read as two requests, or as one that ends elsewhere, is refused, and the
// connection with it.
func TestRequestSmuggling(t *testing.T) {
	r := serving(t, &Server{}, echo)
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, raw string
		want      int
	}{
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", 400},
		{"a list of lengths", post + "Content-Length: 2, 3\r\n\r\nhi", 400},
		{"a negative length", post + "Content-Length: -1\r\n\r\n", 400},
		{"a length with a sign", post + "Content-Length: +2\r\n\r\nhi", 400},
		{"a hexadecimal length", post + "Content-Length: 0x2\r\n\r\nhi", 400},
		{"a huge length", post + "Content-Length: 99999999999999999999\r\n\r\nhi", 400},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
		{"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		{"identity", post + "Transfer-Encoding: identity\r\n\r\n", 501},
		{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		{"a space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		{"a folded first line", "POST / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
		{"a line without a colon", post + "Transfer-Encoding\r\n\r\n", 400},
		{"NUL in a value", post + "X: a\x00b\r\n\r\n", 400},
		{"NUL in a name", post + "X\x00: ab\r\n\r\n", 400},
		{"a bare CR", post + "X: a\rTransfer-Encoding: chunked\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"no HTTP version", "GET /\r\n\r\n", 400},
		{"a malformed method", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"a control character in the path", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
		{"an unknown expectation", post + "Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n", 417},
		{"501 header values", post + strings.Repeat("X: y\r\n", 501) + "\r\n", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, before := range []string{"", okPost} {
				k := r.connect()
				k.t = t
				k.send(before + c.raw + okPost)
				if before != "" {
					k.want(200, `"hi"`)
				}
				answer, err := http.ReadResponse(k.br, nil)
				if err != nil || answer.StatusCode != c.want {
					t.Fatalf("got %v, %v; want %d", answer, err, c.want)
				}
				if rest, _ := io.ReadAll(k.br); strings.Contains(string(rest), `"hi"`) {
					t.Error("what came behind it was taken for a request")
				}
			}
		})
	}
}

// TestRequestsThatAreRead: each is answered in order, also byte by byte and all at once, and the connection lives on.
func TestRequestsThatAreRead(t *testing.T) {
	r := serving(t, &Server{}, echo)
	for _, c := range []struct{ name, raw, want string }{
		{"a body", okPost, `POST /a h "hi" `},
		{"no body", "GET /b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n", `GET /b h "" y`},
		{"a long header", "GET /b HTTP/1.1\r\nHost: h\r\nY: " + strings.Repeat("a", 20_000) + "\r\nX: y\r\n\r\n", `GET /b h "" y`},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := r.connect()
			k.t = t
			for range 3 {
				k.send(c.raw).want(200, c.want)
			}
			k.send(strings.Repeat(c.raw, 3) + okPost)
			for range 3 {
				k.want(200, c.want)
			}
			k.want(200, `"hi"`)
			for i := range min(len(c.raw), 200) {
				k.send(c.raw[i : i+1])
			}
			k.send(c.raw[min(len(c.raw), 200):]).want(200, c.want)
		})
	}
}

// TestChunks: a chunked request is read by its chunks, whatever length it has as well, and the connection ends behind
// its answer: nothing that another reader could take for a part of it is read as a request.
func TestChunks(t *testing.T) {
	r := serving(t, &Server{}, echo)
	for _, lengths := range []string{"", "Content-Length: 50\r\n", "Content-Length: 0\r\n"} {
		for _, chunks := range []string{"2\r\nhi\r\n0\r\n\r\n", "1;x=y\r\nh\r\n1\r\ni\r\n0\r\nX: y\r\n\r\n"} {
			k := r.connect().send("POST /a HTTP/1.1\r\nHost: h\r\n" + lengths + "Transfer-Encoding: Chunked\r\n\r\n" + chunks + okPost)
			if !k.want(200, `POST /a h "hi" `).Close {
				t.Error("the answer does not say that it is the last one")
			}
			k.ended()
		}
	}
}

// TestHugeHeaders: they are refused, and the connection with them.
func TestHugeHeaders(t *testing.T) {
	r := serving(t, &Server{MaxHeaderBytes: 8 << 10}, echo)
	for _, raw := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 20_000),
		"GET /" + strings.Repeat("a", 20_000),
	} {
		answer, err := http.ReadResponse(r.connect().send(raw).br, nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !answer.Close {
			t.Errorf("got %v, %v", answer, err)
		}
	}
}

// TestSlowloris: requests that trickle in are cut off, idle connections are kept for longer, and a handler may take
// its time.
func TestSlowloris(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		srv := &Server{HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second}
		r := servingAt(t, srv, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow":
				<-slow
			case "/deadline":
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute))
			}
			echo(w, r)
		}, mcptest.NewPipes())
		for _, c := range []struct {
			raw   string
			after time.Duration
		}{
			{"", 10 * time.Second},
			{"GET / HT", 10 * time.Second},
			{"GET / HTTP/1.1\r\nHost: h\r\n", 10 * time.Second},
			{"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhi", 10 * time.Second},
			{"POST /deadline HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhi", time.Minute},
		} {
			k := r.connect()
			_ = k.SetDeadline(time.Time{})
			start := time.Now()
			_, _ = io.Copy(io.Discard, k.send(c.raw))
			if took := time.Since(start); took < c.after || took > c.after+2*time.Second {
				t.Errorf("%q: cut off after %v", c.raw, took)
			}
		}
		k := r.connect()
		_ = k.SetDeadline(time.Time{})
		k.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(time.Hour)
		close(slow)
		k.want(200, "/slow")
		time.Sleep(50 * time.Second)
		k.send(okPost).want(200, "hi")
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

// TestStrangersAreNotIdleForLong: behind a 401 or 403 a connection is closed after 5 s, unless another request comes.
func TestStrangersAreNotIdleForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := servingAt(t, &Server{}, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/401":
				w.WriteHeader(http.StatusUnauthorized)
			case "/403":
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "ok")
		}, mcptest.NewPipes())
		get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
		for status, path := range map[int]string{401: "/401", 403: "/403"} {
			k := r.connect()
			_ = k.SetDeadline(time.Time{})
			for range 3 {
				k.send(get(path)).want(status, "ok")
				time.Sleep(4 * time.Second)
			}
			k.send(get(path)).want(status, "ok")
			start := time.Now()
			k.ended()
			if took := time.Since(start); took != strangerIdle {
				t.Errorf("%s: closed after %v", path, took)
			}
			k = r.connect()
			_ = k.SetDeadline(time.Time{})
			k.send(get(path)).want(status, "ok")
			k.send(get("/")).want(200, "ok") // it has found its token
			time.Sleep(4 * time.Minute)
			k.send(get("/")).want(200, "ok")
		}
	})
}

// TestAByteIsNoRequest: an idle connection on which a request begins to come is closed when that does not go on.
func TestAByteIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := servingAt(t, &Server{}, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			mcptest.NewPipes())
		k := r.connect()
		_ = k.SetDeadline(time.Time{})
		for range 2 {
			k.send(okPost).want(401, "")
			synctest.Wait() // until it is idle
			k.send("P")
			time.Sleep(9 * time.Second)
			k.send(okPost[1:]).want(401, "")
			time.Sleep(time.Second)
		}
		k.send("P")
		start := time.Now()
		k.ended()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestRetire: a server that retires takes all that comes, and ends each connection behind its next answer, also where
// the handler says nothing.
func TestRetire(t *testing.T) {
	srv := &Server{}
	r := serving(t, srv, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			echo(w, r)
		}
	})
	idle := r.connect()
	if idle.send(okPost).want(200, "hi").Close {
		t.Error("it ends connections before it retires")
	}
	srv.Retire()
	for _, c := range []*client{idle, r.connect()} {
		if !c.send(okPost).want(200, "hi").Close {
			t.Error("the last answer does not say that it is")
		}
		c.ended()
	}
	c := r.connect()
	if !c.send("GET /silent HTTP/1.1\r\nHost: h\r\n\r\n").want(200, "").Close {
		t.Error("an answer without a body does not say that it is the last one")
	}
	c.ended()
	mcptest.Await(t, "no connections", func() bool { return srv.Connections() == 0 })
}

// TestLastAnswerIsNotReset: what comes behind the last request does not take its answer away.
func TestLastAnswerIsNotReset(t *testing.T) {
	srv := &Server{}
	srv.Retire()
	long := strings.Repeat("x", 1<<20)
	r := serving(t, srv, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, long) })
	for range 20 {
		k := r.connect()
		go func() { _, _ = io.WriteString(k.Conn, strings.Repeat(okPost, 2000)) }()
		k.want(200, long)
		k.ended()
	}
}

// TestEndAsItBegins: a server is looked at and ended while it begins to serve.
func TestEndAsItBegins(t *testing.T) {
	for range 20 {
		srv, l := &Server{Handler: http.HandlerFunc(echo)}, tcp{listenTCP(t)}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		srv.Retire()
		if n := srv.Connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	}
}

func TestShutdown(t *testing.T) {
	asked, go_ := make(chan struct{}), make(chan struct{})
	srv := &Server{}
	r := serving(t, srv, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-go_
		}
		echo(w, r)
	})
	idle, fresh, silent, busy := r.connect(), r.connect(), r.connect(), r.connect()
	idle.send(okPost).want(200, "hi")
	busy.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-asked
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := srv.Shutdown(late); err != context.DeadlineExceeded {
		t.Errorf("with a request under way: %v", err)
	}
	idle.ended()
	if !fresh.send(okPost).want(200, "hi").Close {
		t.Error("the answer to who had just connected does not say that it is the last one")
	}
	if c, err := r.dial(); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("still accepting")
		}
		c.Close()
	}
	close(go_)
	if !busy.want(200, "/slow").Close {
		t.Error("the last answer does not say that it is")
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	silent.ended()
	if err := srv.Serve(mcptest.NewPipes()); err != http.ErrServerClosed {
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

func (l *unready) Dial() (net.Conn, error) { return tcp{l}.Dial() }

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

// servingUnready returns a rig whose server serves, and accepts nothing until it is told to end and then for some time.
func servingUnready(t *testing.T, after time.Duration) *rig {
	t.Helper()
	srv := &Server{HeaderTimeout: time.Hour}
	r := servingAt(t, srv, echo, &unready{TCPListener: listenTCP(t), told: make(chan struct{}), after: after})
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
	r := servingUnready(t, 0)
	waits := r.connect()
	waits.send(okPost)
	if err := r.srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	waits.want(200, "hi")
	waits.ended()
}

// TestShutdownWithoutARequest: who is accepted late at the end, and then says nothing, holds up nobody for long.
func TestShutdownWithoutARequest(t *testing.T) {
	t.Parallel()
	r := servingUnready(t, firstTime+firstTime/2)
	silent := r.connect()
	ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
	defer stop()
	if err := r.srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	silent.ended()
}

// TestShutdownWithHalfARequest: a head that has begun to come and does not go on holds up nobody for long, be it the
// connection's first or not.
func TestShutdownWithHalfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := servingAt(t, &Server{}, echo, mcptest.NewPipes())
		first, next := r.connect(), r.connect()
		next.send(okPost).want(200, "hi")
		for _, c := range []*client{first, next} {
			_ = c.SetDeadline(time.Time{})
			c.send("POST /")
		}
		synctest.Wait()
		start := time.Now()
		if err := r.srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*firstTime+queueTime {
			t.Errorf("it took %v", took)
		}
		first.ended()
		next.ended()
	})
}

// TestShutdownBeforeStrangers: who was let in is waited for at the end, who was not for two seconds, though neither
// reads what it is answered.
func TestShutdownBeforeStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for path, want := range map[string]time.Duration{"/in": 20 * time.Second, "/out": strangerEnd} {
			srv := &Server{WriteTimeout: 20 * time.Second}
			r := servingAt(t, srv, door, mcptest.NewPipes())
			k := r.connect()
			_ = k.SetDeadline(time.Time{})
			k.send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
			synctest.Wait()
			start := time.Now()
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took < want || took > want+time.Second {
				t.Errorf("%s: it took %v", path, took)
			}
		}
	})
}

// failing is a listener whose first accepts fail.
type failing struct {
	tcp
	left int
}

type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }

func (l *failing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, passing{errors.New("too many open files")}
	}
	return l.tcp.Accept()
}

func TestAcceptingAgain(t *testing.T) {
	r := servingAt(t, &Server{}, echo, &failing{tcp{listenTCP(t)}, 2})
	r.connect().send(okPost).want(200, "hi")
}
