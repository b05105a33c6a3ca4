//go:build unix

package upstream

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// roleVar makes the test binary play a part in a child process.
const roleVar = "UPSTREAM_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		play(role)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	initializeRaw  = `{"jsonrpc":"2.0","id":"client-0","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	initializedRaw = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// read reads a message that must be one.
func read(t testing.TB, raw string) *wire.Message {
	t.Helper()
	m, err := wire.Read([]byte(raw), wire.FromUpstream)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

// received is what a Receiver was given.
type received struct {
	*wire.Message
	tag any
}

// recorder is a Receiver. before, if set, runs first.
type recorder struct {
	got    chan received
	before func(*wire.Message)
}

func newRecorder() *recorder { return &recorder{got: make(chan received, 1000)} }

func (r *recorder) Receive(m *wire.Message, tag any) {
	if r.before != nil {
		r.before(m)
	}
	r.got <- received{m, tag}
}

// next waits for the next message of a method.
func (r *recorder) next(t testing.TB, method string) received {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case m := <-r.got:
			if m.Method == method {
				return m
			}
		case <-timeout:
			t.Fatalf("no %s came", method)
		}
	}
}

// eventually waits for a condition that nothing tells of.
func eventually(t testing.TB, met func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !met(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen in 20 s")
		}
	}
}

// newServer makes a server that ends with the test.
func newServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// opening is a legacy client's.
func opening(t testing.TB) Opening {
	t.Helper()
	return Opening{Initialize: read(t, initializeRaw)}
}

// dial connects and says initialized.
func dial(t testing.TB, s *Server, r wire.Receiver) *Conn {
	t.Helper()
	c, err := s.Dial(t.Context(), opening(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Notify([]byte(initializedRaw)); err != nil {
		t.Fatal(err)
	}
	return c
}

// request is a tools/call as a client sends it: id and token are the client's.
func request(t testing.TB, tool string) *wire.Message {
	return read(t, `{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"`+tool+`","_meta":{"progressToken":"tok\u0065n"},"arguments":{"n":12345678901234567890}}}`)
}

// callTool calls a tool and waits.
func callTool(t testing.TB, c *Conn, tool string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := c.Start(request(t, tool), tool).Wait(ctx)
	if err != nil {
		return "", err
	}
	if m.Kind == wire.Failure {
		return string(m.Bytes(m.Error)), nil
	}
	return string(m.Bytes(m.Result)), nil
}

// mustCall is callTool of a tool that answers.
func mustCall(t testing.TB, c *Conn, tool string) string {
	t.Helper()
	text, err := callTool(t, c, tool)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return text
}

// callError is the CallError that err must be.
func callError(t testing.TB, err error) *wire.CallError {
	t.Helper()
	e, ok := err.(*wire.CallError)
	if !ok {
		t.Fatalf("%T %v is no CallError", err, err)
	}
	return e
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not hold %q", text, part)
		}
	}
}
