package mcptest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// RawServer answers HTTP with bytes. It counts connections and requests.
type RawServer struct {
	ln       net.Listener
	answer   func(c net.Conn, n int, req *http.Request, body string)
	Conns    atomic.Int32
	Requests atomic.Int32
	Closed   chan struct{} // gets an element for each connection that the client closed
	wg       sync.WaitGroup
	mu       sync.Mutex // guards open
	open     []net.Conn
}

// NewRawServer returns a server that answers each request by what answer writes; n is which one it is, from 1 on.
func NewRawServer(t *testing.T, answer func(c net.Conn, n int, req *http.Request, body string)) *RawServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &RawServer{ln: ln, answer: answer, Closed: make(chan struct{}, 1000)}
	s.wg.Go(s.accept)
	t.Cleanup(s.Close)
	return s
}

func (s *RawServer) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.Conns.Add(1)
		s.mu.Lock()
		s.open = append(s.open, c)
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *RawServer) serve(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			s.Closed <- struct{}{}
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.answer(c, int(s.Requests.Add(1)), req, string(body))
	}
}

// Close ends the server and its connections.
func (s *RawServer) Close() {
	s.ln.Close()
	s.mu.Lock()
	for _, c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// URL is where the server is.
func (s *RawServer) URL() *url.URL {
	return &url.URL{Scheme: "http", Host: s.ln.Addr().String(), Path: "/mcp"}
}

// RawReply writes an ordinary answer, with more header lines.
func RawReply(c net.Conn, header, body string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
}
