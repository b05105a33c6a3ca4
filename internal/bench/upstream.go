package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
)

// serveStdio is the light upstream over stdio: it answers each line of in by
// one write to out, as servers do. It returns nil at the end of in.
func serveStdio(c *canned, in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	var answer []byte
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a line: %w", err)
		}
		if answer = c.answer(answer[:0], line); len(answer) == 0 {
			continue
		}
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// httpUpstream is the light upstream over Streamable HTTP: a responder on bare
// connections, without the GET stream (405), that asks for no session id back.
type httpUpstream struct {
	canned *canned
	sse    bool // answer requests as a stream of one event instead of JSON
}

// serve answers connections of l until l is closed.
func (u *httpUpstream) serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go u.serveConn(conn)
	}
}

// serveConn answers one connection until it ends or says something else than
// HTTP; either way there is nobody left to tell.
func (u *httpUpstream) serveConn(conn net.Conn) {
	defer conn.Close()
	in := newHTTPReader(conn)
	var scratch, out []byte
	for {
		m, err := in.next()
		if err != nil {
			return
		}
		scratch = u.canned.answer(scratch[:0], m.body)
		out = u.respond(out[:0], m, scratch)
		if _, err := conn.Write(out); err != nil || m.close {
			return
		}
	}
}

// respond appends the whole HTTP answer to m, whose JSON-RPC answer is answer.
func (u *httpUpstream) respond(dst []byte, m *httpMessage, answer []byte) []byte {
	switch {
	case bytes.HasPrefix(m.start, []byte("GET ")):
		return append(dst, "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"...)
	case bytes.HasPrefix(m.start, []byte("DELETE ")):
		return append(dst, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"...)
	case len(answer) == 0:
		return append(dst, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"...)
	}
	dst = append(dst, "HTTP/1.1 200 OK\r\n"...)
	if isInitialize(m.body) {
		dst = fmt.Appendf(dst, "Mcp-Session-Id: %s\r\n", rand.Text())
	}
	if !u.sse {
		dst = fmt.Appendf(dst, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(answer))
		return append(dst, answer...)
	}
	const before, after = "event: message\ndata: ", "\n\n"
	dst = fmt.Appendf(dst, "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s",
		len(before)+len(answer)+len(after), before)
	return append(append(dst, answer...), after+"\r\n0\r\n\r\n"...)
}
