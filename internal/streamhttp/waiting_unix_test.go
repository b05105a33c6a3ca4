//go:build unix

package streamhttp

import (
	"net"
	"net/http"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// TestIdleButAsked: a connection is not closed for being idle when a request has come that was only not read yet.
func TestIdleButAsked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	srv := &LeanServer{Handler: http.HandlerFunc(echo)}
	srv.fill()
	theirs := (&leanRig{t, srv, tcp{l}.dial}).connect()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours := newServerConn(srv, raw)
	theirs.send(okPost)
	mcptest.Await(t, "the request has come", func() bool { return waiting(raw) })
	ours.closeIfIdle()
	srv.retiring.Store(true)
	go ours.serve()
	theirs.reply().want(t, 200, "hi")
	theirs.ended()
}
