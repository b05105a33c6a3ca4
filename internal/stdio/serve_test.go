package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// script is a session that does what a test says.
type script struct {
	on      func(m *wire.Message, to wire.Stream) wire.Pending
	version string
	closed  chan struct{}
	once    sync.Once
	handled atomic.Int32
}

func (s *script) Version() string { return s.version }
func (s *script) Listen()         {}
func (s *script) Close()          { s.once.Do(func() { close(s.closed) }) }
func (s *script) Handle(m *wire.Message, to wire.Stream) wire.Pending {
	s.handled.Add(1)
	if s.on != nil {
		return s.on(m, to)
	}
	if m.Kind == wire.Request {
		to.Answer(result(m, fmt.Sprintf("%q", m.Method)))
	}
	return nil
}

type pending func()

func (p pending) Wait() { p() }

func (pending) Detach(func()) bool { return false }

func result(m *wire.Message, result string) []byte {
	return wire.ResultAnswer(m.Bytes(m.ID), []byte(result))
}

func request(id int, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)
}

// serve runs Serve over in and returns what it wrote.
func serve(t *testing.T, cfg Config, in io.Reader, s *script) string {
	t.Helper()
	s.closed = make(chan struct{})
	var out strings.Builder
	if err := Serve(t.Context(), cfg, in, &out, func(wire.Stream) wire.Session { return s }); err != nil {
		t.Error(err)
	}
	<-s.closed
	return out.String()
}

func TestServe(t *testing.T) {
	in := strings.Join([]string{
		request(1, "a"), "", `{"jsonrpc":"2.0","method":"n"}`, "no JSON", request(2, "b") + "\r",
		`{"jsonrpc":"2.0","id":3,"method":"a","method":"b"}`, "[" + request(4, "c") + "]",
		request(5, strings.Repeat("x", 300)), request(6, "d"),
	}, "\n")
	got := strings.Split(serve(t, Config{MaxMessage: 200}, strings.NewReader(in), &script{version: "2025-06-18"}), "\n")
	for i, want := range []string{
		`{"jsonrpc":"2.0","id":1,"result":"a"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`,
		`{"jsonrpc":"2.0","id":2,"result":"b"}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"JSON-RPC batches belong to protocol revision 2025-03-26`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"a message of more than 200 bytes`,
		`{"jsonrpc":"2.0","id":6,"result":"d"}`, ``,
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) || want == "" && got[i] != "" {
			t.Errorf("line %d: got %q, want %q", i, got, want)
		}
	}
}

// Messages are handed on in order while requests wait.
func TestServeInOrderAndAtOnce(t *testing.T) {
	second := make(chan struct{})
	got := serve(t, Config{Linger: time.Minute}, strings.NewReader(request(1, "first")+"\n"+request(2, "second")+"\n"), &script{
		on: func(m *wire.Message, to wire.Stream) wire.Pending {
			if m.Method == "second" {
				to.Answer(result(m, "2"))
				close(second)
				return nil
			}
			if !to.Listening() || !to.Send([]byte(`"note"`)) {
				t.Error("not open")
			}
			return pending(func() { <-second; to.Answer(result(m, "1")) })
		},
	})
	want := "\"note\"\n" + `{"jsonrpc":"2.0","id":2,"result":2}` + "\n" + `{"jsonrpc":"2.0","id":1,"result":1}` + "\n"
	if got != want {
		t.Errorf("got %q", got)
	}
}

func TestServeBatches(t *testing.T) {
	var running, most int // unguarded: the race detector sees an overlap
	on := func(m *wire.Message, to wire.Stream) wire.Pending {
		if m.Kind != wire.Request {
			return nil
		}
		running++
		most = max(most, running)
		return pending(func() {
			running--
			if m.Method == "cancelled" {
				to.Answer(nil)
				return
			}
			to.Send([]byte(`"note"`))
			to.Answer(result(m, "1"))
		})
	}
	note := `{"jsonrpc":"2.0","method":"n"}`
	for in, want := range map[string]string{
		`[` + request(1, "a") + `,` + note + `,` + request(2, "b") + `]`: "\"note\"\n\"note\"\n" +
			`[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"result":1}]` + "\n",
		`[` + note + `,` + request(1, "cancelled") + `]`: "",
		`[` + request(1, "initialize") + `]`: `[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,` +
			`"message":"initialize must not be part of a batch"}}]` + "\n",
		`[{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]`: `[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,` +
			`"message":"revision 2026-07-28 has no batches: send the messages one by one"}}]` + "\n",
		`[5]`: `[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message must be a JSON object"}}]` + "\n",
		`[]`:  `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"an empty batch"}}` + "\n",
	} {
		if got := serve(t, Config{Linger: time.Minute}, strings.NewReader(in), &script{version: "2025-03-26", on: on}); got != want {
			t.Errorf("%s: got %q", in, got)
		}
	}
	if most != 1 {
		t.Errorf("%d members at a time", most)
	}
}

func TestServeEndOfInputCancels(t *testing.T) {
	s := &script{}
	s.on = func(m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { <-s.closed; to.Answer(result(m, `"cancelled"`)) })
	}
	if got := serve(t, Config{}, strings.NewReader(request(1, "slow")), s); !strings.Contains(got, "cancelled") {
		t.Errorf("got %q", got)
	}
}

func TestServeDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		begun := time.Now()
		serve(t, Config{Drain: time.Second}, strings.NewReader(request(1, "stuck")), &script{
			on: func(m *wire.Message, to wire.Stream) wire.Pending { return pending(func() { <-stuck }) },
		})
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		close(stuck)
	})
}

// stdin stands for an input whose read cannot be unblocked.
type stdin struct{ io.Reader }

func TestServeEndsWithItsContext(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) io.Reader{
		"unblocked": func(c net.Conn) io.Reader { return c },
		"stays":     func(c net.Conn) io.Reader { return stdin{c} },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			us, them := net.Pipe()
			s := &script{closed: make(chan struct{})}
			var out strings.Builder
			done := make(chan error)
			go func() { done <- Serve(ctx, Config{}, wrap(us), &out, func(wire.Stream) wire.Session { return s }) }()
			if _, err := io.WriteString(them, request(1, "a")+"\n"); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			<-s.closed
			handled := s.handled.Load()
			go io.WriteString(them, request(2, "late")+"\n")
			them.Close()
			us.Close()
			if s.handled.Load() != handled {
				t.Error("a message was handed on after the end")
			}
		})
	}
}

func TestServeEndsWhenNobodyReads(t *testing.T) {
	us, them := net.Pipe()
	defer them.Close()
	r, out := io.Pipe()
	r.Close()
	s := &script{closed: make(chan struct{})}
	go io.WriteString(them, request(1, "a")+"\n")
	err := Serve(t.Context(), Config{}, us, out, func(wire.Stream) wire.Session { return s })
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	<-s.closed
}

func TestServeReadError(t *testing.T) {
	us, them := net.Pipe()
	us.Close()
	defer them.Close()
	s := &script{closed: make(chan struct{})}
	err := Serve(t.Context(), Config{}, us, io.Discard, func(wire.Stream) wire.Session { return s })
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func BenchmarkServe(b *testing.B) {
	us, them := net.Pipe()
	r, w := io.Pipe()
	s := &script{closed: make(chan struct{}), on: func(m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { to.Answer(result(m, `{"content":[]}`)) })
	}}
	go Serve(b.Context(), Config{}, us, w, func(wire.Stream) wire.Session { return s })
	window := make(chan struct{}, 32)
	go func() {
		line := []byte(request(1, "tools/call") + "\n")
		for range b.N {
			window <- struct{}{}
			if _, err := them.Write(line); err != nil {
				return
			}
		}
	}()
	b.ReportAllocs()
	lines := bufio.NewScanner(r)
	for range b.N {
		lines.Scan()
		<-window
	}
	them.Close()
}
