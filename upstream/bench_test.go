//go:build unix

package upstream

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchCalls runs calls from several goroutines. The CPU time is this
// process's.
func benchCalls(b *testing.B, c *Conn, m *wire.Message) {
	b.ReportAllocs()
	b.SetParallelism(16)
	b.ResetTimer()
	before := cpuTime()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Start(m, nil).Wait(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func BenchmarkCallProcess(b *testing.B) {
	benchCalls(b, dial(b, newServer(b, child("server")), newRecorder()), request(b, "echo"))
}

// BenchmarkCallHTTP counts a server that does next to nothing in.
func BenchmarkCallHTTP(b *testing.B) {
	benchHTTP(b, func(s *Server) *Conn { return dial(b, s, newRecorder()) }, request(b, "echo"))
}

// BenchmarkCallModernHTTP is the same in the modern era, headers and all.
func BenchmarkCallModernHTTP(b *testing.B) {
	m := read(b, strings.Replace(string(request(b, "echo").Raw), `"_meta":{`, strings.TrimSuffix(modernMeta, "}")+",", 1))
	benchHTTP(b, func(s *Server) *Conn {
		return dialEra(b, s, Opening{Discover: read(b, discoverRaw)}, newRecorder(), wire.Modern)
	}, m)
}

func benchHTTP(b *testing.B, dial func(*Server) *Conn, m *wire.Message) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answerAll(c)
		}
	}()
	s := newServer(b, Config{URL: "http://" + ln.Addr().String() + "/mcp"})
	benchCalls(b, dial(s), m)
	s.Close()
	ln.Close()
}

// answerAll answers every request with a result, whatever it was, but for the
// id.
func answerAll(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		length := 0
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			if n, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
				length, _ = strconv.Atoi(strings.TrimSpace(n))
			}
			if len(line) == 2 {
				break
			}
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(br, body); err != nil {
			return
		}
		answerOne(c, string(body))
	}
}

func answerOne(c net.Conn, body string) {
	if !strings.Contains(body, `"id":`) {
		io.WriteString(c, "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
		return
	}
	_, id, _ := strings.Cut(body, `"id":`)
	id, _, _ = strings.Cut(id, ",")
	out := `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"2025-06-18","supportedVersions":["2026-07-28"],"capabilities":{},"content":[{"type":"text","text":"hello"}]}}`
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(out))+"\r\n\r\n"+out)
}
