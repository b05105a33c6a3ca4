//go:build unix

package httpserver

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// TestIdleButAsked: a connection is not closed for being idle when a request has come that was only not read yet.
func TestIdleButAsked(t *testing.T) {
	l := tcp{listenTCP(t)}
	defer l.Close()
	srv := &Server{}
	srv.fill()
	theirs := (&rig{t, srv, l.Dial}).connect()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours := srv.accept(raw)
	theirs.send(okPost)
	mcptest.Await(t, "the request has come", func() bool { return waiting(raw) })
	ours.cutIfQuiet()
	if n, err := ours.Read(make([]byte, 1000)); n != len(okPost) || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	ours.cut()
}
