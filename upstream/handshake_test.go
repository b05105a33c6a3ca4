//go:build unix

package upstream

import (
	"errors"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// TestProtocolIsFixed whatever the client prefers, and whatever was seen of the server before.
func TestProtocolIsFixed(t *testing.T) {
	w := newModernWeb(t)
	w.results("initialize", `{"protocolVersion":"2025-06-18","capabilities":{}}`)
	for fixed, era := range map[Protocol]wire.Era{ProtocolLegacy: wire.Legacy, ProtocolModern: wire.Modern} {
		s := newServer(t, Config{URL: w.URL, Protocol: fixed})
		s.learn(era, speaksNot)
		s.learn(other(era), speaks)
		for _, prefer := range []wire.Era{wire.Legacy, wire.Modern} {
			dialEra(t, s, eras(t, prefer), newRecorder(), era)
		}
	}
}

// TestProtocolThatTheServerDoesNotSpeak is an error that says what it speaks, over HTTP and over stdio.
func TestProtocolThatTheServerDoesNotSpeak(t *testing.T) {
	legacy, modern := newModernWeb(t), newModernWeb(t)
	legacy.results("initialize", `{"protocolVersion":"2025-06-18","capabilities":{}}`)
	legacy.fails("server/discover", 400, -32601, "")
	sessions := `the server speaks revision "2025-06-18", with sessions, and not 2026-07-28: leave --upstream-protocol modern out`
	none := `the server speaks revision "2026-07-28", and none with sessions: leave --upstream-protocol legacy out`
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"sessions alone over HTTP":                 {Config{URL: legacy.URL, Protocol: ProtocolModern}, sessions},
		"no sessions over HTTP":                    {Config{URL: modern.URL, Protocol: ProtocolLegacy}, none},
		"no sessions over stdio":                   {with(child("modern-only"), ProtocolLegacy), none},
		"sessions over stdio, the end on discover": {with(child("hasty"), ProtocolModern), `the server speaks revision "2025-11-25", with sessions`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, test.cfg)
			for _, prefer := range []wire.Era{wire.Modern, wire.Legacy} {
				_, err := s.Dial(t.Context(), eras(t, prefer), newRecorder())
				contains(t, callError(t, err).Error(), test.want)
				if e, ok := errors.AsType[*EraError](err); !ok || e.Protocol != test.cfg.Protocol {
					t.Error(err)
				}
				s.mu.Lock() // it would not be tried again at once
				s.blocked = time.Time{}
				s.mu.Unlock()
			}
			s.Close()
			if n := s.Children(); n != 0 {
				t.Errorf("%d children", n)
			}
		})
	}
}

func with(cfg Config, p Protocol) Config {
	cfg.Protocol = p
	return cfg
}

// TestFixedProtocolWaits for a server that is slow to answer, since no other era is to be tried.
func TestFixedProtocolWaits(t *testing.T) {
	cfg := with(child("late"), ProtocolModern)
	cfg.ProbeTimeout = time.Millisecond
	dialEra(t, newServer(t, cfg), eras(t, wire.Legacy), newRecorder(), wire.Modern)
	silent := with(child("server"), ProtocolModern)
	silent.DialTimeout = 200 * time.Millisecond
	_, err := newServer(t, silent).Dial(t.Context(), eras(t, wire.Modern), newRecorder())
	contains(t, err.Error(), "no answer to server/discover in 2", "leave --upstream-protocol modern out", "--upstream-protocol modern")
}

// TestFixedProtocolOverSSE can only be that of sessions.
func TestFixedProtocolOverSSE(t *testing.T) {
	if _, err := New(Config{URL: "http://127.0.0.1:1/sse", SSE: true, Protocol: ProtocolModern}); err == nil {
		t.Error("there is no modern era over HTTP+SSE")
	}
	if _, err := New(Config{URL: "http://127.0.0.1:1/sse", SSE: true, Protocol: ProtocolLegacy}); err != nil {
		t.Error(err)
	}
}
