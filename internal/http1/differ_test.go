//go:build unix

package http1

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FuzzAnswers: ours reads two answers, one behind the other, as [http.Transport] reads each by itself: the same status,
// header, body and trailer. It refuses more, for the reasons in stricter alone, and takes nothing that Transport refuses.
// Whatever a server sent, the third request gets the answer that it is sent, on whatever connection: bytes that are
// nobody's, behind an answer or while the connection is idle, are taken for no answer.
func FuzzAnswers(f *testing.F) {
	for _, first := range answerSeeds {
		for _, second := range []string{first, answerSeeds[0]} {
			f.Add([]byte(first), []byte(second), []byte(nil), uint16(0), false)
			f.Add([]byte(first), []byte(second), []byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"), uint16(20), false)
		}
		f.Add([]byte(first), []byte(first), []byte(nil), uint16(len(first)-1), true)
	}
	for _, pair := range [][2]string{ // heads that differ in a length alone, of which the first is fine
		{"Content-Length: 2\r\nContent-Length: 2", "Content-Length: 2\r\nContent-Length: 3"},
		{"Content-Length: 2\r\nX: y", "Content-Length: 0x2\r\nX: y"},
		{"Content-Length: 2\r\nX: y", "Content-Length: 2 \r\nX: y"},
		{"X: Content-Length: 2\r\nContent-Length: 2", "X: Content-Length: 9\r\nContent-Length: 2"},
	} {
		f.Add([]byte("HTTP/1.1 200 OK\r\n"+pair[0]+"\r\n\r\n{}"), []byte("HTTP/1.1 200 OK\r\n"+pair[1]+"\r\n\r\n{ }"), []byte(nil), uint16(0), false)
	}
	f.Fuzz(func(t *testing.T, first, second, stray []byte, cut uint16, hangUp bool) {
		if len(first)+len(second)+len(stray) > 16<<10 {
			return // what fits no socket buffer waits for its reader
		}
		const last = "HTTP/1.1 200 OK\r\nX-Third: yes\r\nContent-Length: 5\r\n\r\nthird"
		l := new(Transport)
		defer l.CloseIdleConnections()
		s := &answerer{cut: int(cut), answers: [][]byte{first, second, []byte(last)}, hangUp: hangUp}
		defer s.close()
		for i, answer := range s.answers {
			got := s.askOurs(t, l)
			want := transportReads(t, &answerer{cut: int(cut), answers: [][]byte{answer}, hangUp: hangUp})
			switch {
			case got.err == nil && want.err != nil:
				t.Fatalf("answer %d: ours reads %+v, Transport refuses it: %v", i, got, want.err)
			case got.err != nil && want.err == nil && !stricter(got.err):
				t.Fatalf("answer %d: Transport reads %+v, ours refuses it: %v", i, want, got.err)
			case got.err == nil && !reflect.DeepEqual(got, want):
				t.Fatalf("answer %d: ours reads\n%+v, Transport\n%+v", i, got, want)
			case got.closes && len(l.idle) > 0:
				t.Fatalf("answer %d: ours keeps the connection, which is to be closed: %+v", i, got)
			}
			s.stray(stray)
		}
	})
}

// stricter reports whether an answer is one that a Transport refuses for a reason of its own: a status below 100 is none; it
// changes to no other protocol, and waits for no more than 7 interim answers; its headers are shorter.
func stricter(err error) bool {
	for _, reason := range []string{"malformed HTTP status code", "unexpected HTTP status 1xx", "its header is too long"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

var answerSeeds = []string{
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
	"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length:\t02 \r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nX: y\r\n Content-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nX: y\rContent-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
	"HTTP/1.1 200 OK\nContent-Length: 1\n\nx\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA: b\n\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nX-Trailer: t\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: X-Trailer\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: t\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nConnection: close, close\r\nContent-Length: 2\r\n\r\n{}tail",
	"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=0\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
	"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 205 Reset Content\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 103 Early Hints\r\nLink: x\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nx",
	strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 9) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 20 X\r\n\r\n", "HTTP/1.1 2000 X\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n", "ICY 200 OK\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\nX\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", "x",
}

// reading is what a client makes of an answer. err is of its head or its body.
type reading struct {
	status  int
	proto   string
	header  http.Header
	trailer http.Header
	body    string
	closes  bool
	err     error
}

func readingOf(resp *http.Response, err error) reading {
	if err != nil {
		return reading{err: err}
	}
	defer resp.Body.Close()
	header := resp.Header.Clone()
	header.Del("Content-Length") // the heads that a Transport knows leave it to ContentLength
	if resp.ContentLength >= 0 {
		header.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return reading{err: fmt.Errorf("its body: %w", err)}
	}
	return reading{resp.StatusCode, resp.Proto, header, resp.Trailer, string(body), resp.Close, nil}
}

// answerer is a server that gives request after request its answer, on whatever connection it comes.
type answerer struct {
	cut     int      // where an answer is torn in two
	answers [][]byte // those to come are next
	hangUp  bool     // even behind an answer that says where it ends
	next    int
	open    []net.Conn    // this end of all connections
	wrote   chan struct{} // gets an element for each answer
}

// connect makes a connection, and serves it.
func (s *answerer) connect(t *testing.T) net.Conn {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if s.wrote == nil {
		s.wrote = make(chan struct{}, 100)
	}
	s.open = append(s.open, ends[1])
	go s.serve(ends[1].(*net.UnixConn))
	return ends[0]
}

func (s *answerer) serve(c *net.UnixConn) {
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		answer := s.answers[s.next]
		s.next++
		cut := min(s.cut, len(answer))
		_, _ = c.Write(answer[:cut])
		runtime.Gosched() // most often it is read in two parts then
		_, _ = c.Write(answer[cut:])
		if s.hangUp || !delimited(answer) {
			_ = c.CloseWrite()
		}
		s.wrote <- struct{}{}
	}
}

// delimited reports whether an answer is all there, or is at fault before its end, so that nobody waits for more.
func delimited(answer []byte) bool {
	br := bufio.NewReader(bytes.NewReader(answer))
	for range 20 {
		resp, err := http.ReadResponse(br, &http.Request{Method: "POST"})
		if err != nil {
			return false
		}
		if resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			_, err = io.Copy(io.Discard, resp.Body)
			return err == nil && (resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0) && resp.StatusCode > 199
		}
	}
	return false
}

// stray sends bytes that are nobody's on the last connection, behind all that belongs there.
func (s *answerer) stray(raw []byte) {
	if n := len(s.open); n > 0 {
		_, _ = s.open[n-1].Write(raw)
	}
}

func (s *answerer) close() {
	for _, c := range s.open {
		c.Close()
	}
}

const serverAddr = "server.example:80"

// askOurs sends a request as [Transport.Send] does, on a kept connection or on a new one.
func (s *answerer) askOurs(t *testing.T, l *Transport) reading {
	req := question(t)
	p, err := Prepare(req)
	if err != nil {
		t.Fatal(err)
	}
	out := &outgoing{Prepared: p, ctx: req.Context(), body: net.Buffers{[]byte("{}")}}
	conn := l.take(serverAddr)
	if conn != nil {
		conn.reused = true
	} else {
		conn = newConn(s.connect(t), serverAddr, defaultIdle)
	}
	resp, err := l.exchange(conn, out)
	if conn.reused && NotSent(err) {
		resp, err = l.exchange(newConn(s.connect(t), serverAddr, defaultIdle), out)
	}
	got := readingOf(resp, err)
	<-s.wrote
	return got
}

// transportReads is what [http.Transport] reads of the first answer.
func transportReads(t *testing.T, s *answerer) reading {
	defer s.close()
	tr := &http.Transport{
		DisableCompression: true,
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return s.connect(t), nil },
	}
	defer tr.CloseIdleConnections()
	got := readingOf(tr.RoundTrip(question(t)))
	return got
}

func question(t *testing.T) *http.Request {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // an answer that nobody ends is a find
	t.Cleanup(cancel)
	req := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: serverAddr, Path: "/mcp"}, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2}
	return req.WithContext(ctx)
}
