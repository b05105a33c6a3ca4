package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// playStreamHTTP is the limit of every proxy with this project's HTTP server
// in front: that server, and behind it nothing but prepared answers.
func playStreamHTTP(a roleArgs) error {
	return listenUntilStdinEnds(func(l net.Listener) error { return serveCanned(l, a.payload, a.modern) })
}

// serveCanned answers over HTTP on l until l is closed.
func serveCanned(l net.Listener, payload int, modern bool) error {
	answers := newCanned(cannedText(payload), modern)
	server := streamhttp.NewServer(streamhttp.ServerConfig{
		Path:     mcpPath,
		Loopback: true,
		Open: func(wire.Stream, streamhttp.PeerInfo) (wire.Session, error) {
			return &cannedSession{canned: answers}, nil
		},
		Modern: func(m *wire.Message, s wire.Stream, _ streamhttp.PeerInfo) wire.Pending {
			return (&cannedSession{canned: answers}).Handle(m, s)
		},
	})
	err := (&httpserver.Server{Handler: server}).Serve(l)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving: %w", err)
}

// cannedSession answers each request at once.
type cannedSession struct{ canned *canned }

var _ wire.Session = (*cannedSession)(nil)

func (c *cannedSession) Handle(m *wire.Message, s wire.Stream) wire.Pending {
	if answer := c.canned.answer(nil, m.Raw); answer != nil {
		s.Answer(answer)
	}
	return nil
}

func (c *cannedSession) Version() string { return latestLegacy }
func (c *cannedSession) Listen()         {}
func (c *cannedSession) Close()          {}
