//go:build unix

package http1

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"
)

// cannedServer answers every request with the same bytes, cheaply: it looks for
// the end of the head and takes the body's length as known.
func cannedServer(b *testing.B) *url.URL {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go canned(c)
		}
	}()
	return &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/mcp"}
}

func canned(c net.Conn) {
	defer c.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 80\r\n\r\n" +
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"helloooo"}]}}`[:80])
	br := bufio.NewReader(c)
	for {
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := io.CopyN(io.Discard, br, 100); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The CPU time is that of the client and of a server that does next to nothing.
func benchTransport(b *testing.B, rt RoundTripper, parallel int) {
	u := cannedServer(b)
	b.SetParallelism(parallel)
	before := cpu()
	exchangeBench(b, rt, u)
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func BenchmarkTransport(b *testing.B) {
	b.Run("transport/1", func(b *testing.B) { benchTransport(b, new(Transport), 1) })
	b.Run("nethttp/1", func(b *testing.B) { benchTransport(b, NewStandard(), 1) })
	b.Run("transport/16", func(b *testing.B) { benchTransport(b, new(Transport), 16) })
	b.Run("nethttp/16", func(b *testing.B) { benchTransport(b, NewStandard(), 16) })
}
