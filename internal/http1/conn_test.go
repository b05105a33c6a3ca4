//go:build unix

package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// narrow connects to a server with buffers that hold a few KiB, so that a request of 60 KiB
// does not fit. The server's end is given up with the test.
func narrow(t *testing.T) (*conn, *net.TCPConn) {
	t.Helper()
	l, err := (&net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
		return err
	}}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.(*net.TCPConn).SetWriteBuffer(4 << 10)
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return newConn(ours, l.Addr().String(), defaultIdle), theirs.(*net.TCPConn)
}

// arrived waits until something has come on a connection, and leaves it there. It closes begin
// once it has seen that nothing is there yet.
func arrived(t *testing.T, c net.Conn, begin chan struct{}) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			if err == syscall.EAGAIN && begin != nil {
				close(begin)
				begin = nil
			}
			return err != syscall.EAGAIN
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// posting is a POST of a body.
func posting(ctx context.Context, c *conn, body string) *outgoing {
	p := &Prepared{req: &http.Request{Method: http.MethodPost}, addr: c.addr, head: []byte("POST /mcp HTTP/1.1\r\nHost: x\r\n")}
	return &outgoing{Prepared: p, ctx: ctx, body: net.Buffers{[]byte(body)}}
}

// A request that the system takes in pieces arrives whole, once, and is answered.
func TestConnWritesInPieces(t *testing.T) {
	for _, reused := range []bool{false, true} {
		c, theirs := narrow(t)
		c.reused = reused
		body := strings.Repeat("0123456789abcdef", 60<<10/16)
		out := posting(t.Context(), c, body)
		got := make(chan string, 1)
		go func() {
			arrived(t, theirs, nil) // what fits is written: the rest waits for us
			want := len(out.head) + len("Content-Length: 61440\r\n\r\n") + len(body)
			raw := make([]byte, want)
			_, _ = io.ReadFull(theirs, raw)
			mcptest.RawReply(theirs, "", "ok")
			rest, _ := io.ReadAll(theirs)
			got <- string(raw[want-len(body):]) + string(rest)
		}()
		resp, err := new(Transport).exchange(c, out)
		if err != nil {
			t.Fatal(err)
		}
		if text := textOf(t, resp); text != "ok" {
			t.Error(text)
		}
		c.Close()
		if text := <-got; text != body {
			t.Errorf("reused %t: %d bytes of a body of %d arrived", reused, len(text), len(body))
		}
	}
}

// A peer that does not read holds up a request until its end: then it was sent, in part, and
// what the peer says later is no answer.
func TestConnEndsWhileThePeerDoesNotRead(t *testing.T) {
	for _, reused := range []bool{false, true} {
		c, theirs := narrow(t)
		c.reused = reused
		var life deadline.Life
		go func() {
			arrived(t, theirs, nil)
			life.End()
			mcptest.RawReply(theirs, "", "late")
		}()
		_, err := new(Transport).exchange(c, posting(&life, c, strings.Repeat("x", 60<<10)))
		if !errors.Is(err, context.Canceled) || NotSent(err) {
			t.Errorf("reused %t: %v", reused, err)
		}
	}
}

// A request that ends while its answer is waited for was sent, and its connection is of no
// further use.
func TestConnEndsWhileItWaits(t *testing.T) {
	got := make(chan struct{}, 1)
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		if n == 1 {
			mcptest.RawReply(c, "", "first")
			return
		}
		got <- struct{}{}
	})
	l := newTransport(t)
	post(t, s, l, "x")
	var life deadline.Life
	go func() { <-got; life.End() }()
	if _, err := l.RoundTrip(requestTo(&life, s, "x")); !errors.Is(err, context.Canceled) || NotSent(err) {
		t.Error(err)
	}
	<-s.Closed
	if s.Conns.Load() != 1 || s.Requests.Load() != 2 {
		t.Errorf("%d requests on %d connections", s.Requests.Load(), s.Conns.Load())
	}
}

// A request that has ended before it was written is not.
func TestConnEndsBeforeItBegins(t *testing.T) {
	for _, reused := range []bool{false, true} {
		c, theirs := narrow(t)
		c.reused = reused
		c.abort()
		if written, err := c.write([]byte("x")); written != 0 || err == nil {
			t.Errorf("%d bytes written, %v", written, err)
		}
		c.Close()
		if raw, _ := io.ReadAll(theirs); len(raw) > 0 {
			t.Errorf("%q arrived", raw)
		}
	}
}

// A server that answers before it is asked, as one without room does, and waits for the
// client to hang up, is heard at once.
func TestConnFindsAnAnswerThatIsThere(t *testing.T) {
	c, theirs := narrow(t)
	begin := make(chan struct{})
	go func() {
		<-begin
		fmt.Fprint(theirs, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}()
	arrived(t, c.Conn, begin) // and the poller has told of it
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := new(Transport).exchange(c, posting(ctx, c, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
	resp.Body.Close()
}

// Answers of HTTP/1.0 end with their connection, unless they say otherwise.
func TestConnOfHTTP10(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, n int, _ *http.Request, _ string) {
		if n == 1 {
			fmt.Fprint(c, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\none")
			return
		}
		fmt.Fprint(c, "HTTP/1.0 200 OK\r\n\r\nmore")
		c.Close()
	})
	l := newTransport(t)
	for _, want := range []string{"one", "more", "more"} {
		if got := post(t, s, l, "x"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s.Conns.Load() != 2 {
		t.Errorf("%d connections", s.Conns.Load())
	}
}

// whims are what the server of a storm does with a request, by the request's first letter.
var whims = map[byte]func(c net.Conn, id string){
	'a': func(c net.Conn, id string) { mcptest.RawReply(c, "", id) },
	'b': func(c net.Conn, id string) { mcptest.RawReply(c, "", id); c.Close() },
	'c': func(c net.Conn, _ string) { c.Close() },
	'd': func(c net.Conn, _ string) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le"); c.Close() },
	'e': func(c net.Conn, id string) {
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
		mcptest.RawReply(c, "", id)
	},
	'f': func(c net.Conn, id string) {
		for _, piece := range []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chu", "nked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n", len(id), id), "0\r\n\r\n"} {
			io.WriteString(c, piece)
		}
	},
	'g': func(c net.Conn, id string) { // and an answer that nobody has asked for
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", len(id), id)
	},
	'h': func(net.Conn, string) {}, // which is none at all
}

// Whatever the server does, and whenever a request is ended: nobody gets another's answer, no
// request arrives twice, and what was not sent does not arrive.
func TestConnStorm(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string]int)
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, body string) {
		if int64(len(body)) < req.ContentLength {
			return // it was ended while it was written
		}
		id, _, _ := strings.Cut(body, " ")
		mu.Lock()
		seen[id]++
		mu.Unlock()
		whims[id[0]](c, id)
	})
	l := newTransport(t)
	unsent := make(chan string, 8*30)
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(worker, 0))
			for n := range 30 {
				id := fmt.Sprintf("%c-%d-%d", 'a'+byte(random.IntN(len(whims))), worker, n)
				if storm(t, l, s, random, id) {
					unsent <- id
				}
			}
		})
	}
	all.Wait()
	l.CloseIdleConnections()
	s.Close()
	close(unsent)
	for id := range unsent {
		if seen[id] > 0 {
			t.Errorf("%s was not sent, and has arrived", id)
		}
	}
	for id, times := range seen {
		if times > 1 {
			t.Errorf("%s has arrived %d times", id, times)
		}
	}
}

// storm sends a request, some of which end early. It reports whether it was not sent.
func storm(t *testing.T, l *Transport, s *mcptest.RawServer, random *rand.Rand, id string) (unsent bool) {
	var life deadline.Life
	if id[0] == 'h' || random.IntN(3) == 0 {
		end := time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, life.End)
		defer end.Stop()
	}
	body := id + " " + strings.Repeat("x", random.IntN(100)*random.IntN(1000))
	resp, err := l.RoundTrip(requestTo(&life, s, body))
	if err != nil {
		return NotSent(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil && string(text) != id {
		t.Errorf("%s is answered %q", id, text)
	}
	return false
}
