package streamhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// BenchmarkPOST is the server end alone, with the bare net/http server beside
// it, under a client that costs little.
func BenchmarkPOST(b *testing.B) {
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}}`)
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw := make([]byte, r.ContentLength)
		_, _ = io.ReadFull(r.Body, raw)
		w.Header()["Content-Type"] = valueJSON
		_, _ = w.Write(answer)
	})
	const echo = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}%s}}`
	legacy := func(headers ...string) string {
		return post1(fmt.Sprintf(echo, ""), append(headers, "Mcp-Protocol-Version: 2025-11-25")...)
	}
	modern := headed(fmt.Sprintf(echo, ","+modernMeta), "tools/call", "Mcp-Name: echo")
	b.Run("net/http", func(b *testing.B) { benchHandler(b, bare, legacy(), nil) })
	srv := NewServer(ServerConfig{Loopback: true, Open: func(own wire.Stream, _ PeerInfo) (wire.Session, error) {
		return &script{own: own, closed: make(chan struct{}), on: func(s *script, _ *wire.Message, to wire.Stream) wire.Pending {
			s.seen = s.seen[:0]
			return pending(func() { to.Answer(answer) })
		}}, nil
	}, Modern: func(_ *wire.Message, to wire.Stream, _ PeerInfo) wire.Pending {
		return pending(func() { to.Answer(answer) })
	}})
	defer srv.Close(context.Background())
	b.Run("legacy", func(b *testing.B) { benchHandler(b, srv, "", legacy) })
	b.Run("modern", func(b *testing.B) { benchHandler(b, srv, modern, nil) })
}

// benchHandler measures a request. session makes it of a session's id.
func benchHandler(b *testing.B, h http.Handler, text string, session func(...string) string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &httpserver.Server{Handler: h}
	go srv.Serve(l)
	defer srv.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	if session != nil {
		_, _ = io.WriteString(c, post1(fmt.Sprintf(initBody, "2025-11-25")))
		text = session("Mcp-Session-Id: " + mustRead(b, br).Header.Get(headerSession))
	}
	raw := []byte(text)
	requests := strings.Count(text, "POST ")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(raw); err != nil {
			b.Fatal(err)
		}
		for range requests {
			skipResponse(b, br)
		}
	}
}

// skipResponse reads a response of known length without allocating.
func skipResponse(b *testing.B, br *bufio.Reader) {
	length := 0
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if len(line) <= 2 {
			break
		}
		if strings.HasPrefix(string(line), "Content-Length: ") {
			for _, c := range line[16 : len(line)-2] {
				length = 10*length + int(c-'0')
			}
		}
	}
	if _, err := br.Discard(length); err != nil {
		b.Fatal(err)
	}
}

func mustRead(b *testing.B, br *bufio.Reader) *http.Response {
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp
}

// quiet is a session that costs nothing, so that the server's part shows.
type quiet struct{}

func (quiet) Version() string { return "2025-11-25" }
func (quiet) Listen()         {}
func (quiet) Close()          {}
func (quiet) Handle(m *wire.Message, to wire.Stream) wire.Pending {
	to.Answer(wire.ResultAnswer(m.Bytes(m.ID), []byte("{}")))
	return nil
}

// BenchmarkIdle is the memory of an idle session, without and with its GET
// stream; the latter is both ends' within one process, less the client's reader.
func BenchmarkIdle(b *testing.B) {
	const n = 1000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := NewServer(ServerConfig{Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return quiet{}, nil }})
	hs := &httpserver.Server{Handler: srv}
	go hs.Serve(l)
	defer hs.Close()
	defer srv.Close(context.Background())
	for b.Loop() {
		before := inUse()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		br := bufio.NewReader(c)
		ids := make([]string, n)
		for i := range ids {
			_, _ = io.WriteString(c, post1(fmt.Sprintf(initBody, "2025-11-25")))
			ids[i] = mustRead(b, br).Header.Get(headerSession)
		}
		c.Close()
		sessions := inUse()
		conns := make([]net.Conn, n)
		for i, id := range ids {
			if conns[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
				b.Fatal(err)
			}
			_, _ = io.WriteString(conns[i], request("GET", "/mcp", "", "Mcp-Session-Id: "+id))
			_, _ = conns[i].Read(make([]byte, 1))
		}
		gets := inUse()
		b.ReportMetric(float64(sessions-before)/n, "B/session")
		b.ReportMetric(float64(gets-sessions)/n, "B/GET")
		for _, c := range conns {
			c.Close()
		}
		for _, ses := range srv.table.all(nil) {
			srv.end(ses, "bench")
		}
	}
}

func inUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
