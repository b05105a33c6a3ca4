//go:build long

package attack

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// openSecured is openPlain over TLS.
func openSecured(t *testing.T, flags ...string) *rig {
	t.Helper()
	cert, key := mcptest.WriteTLS(t)
	r := openPlain(t, append([]string{"--tls-cert", cert, "--tls-key", key}, flags...)...)
	r.url = "https" + strings.TrimPrefix(r.url, "http")
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	r.as("token-of-ann").Initialize()
	return r
}

// second is a connection on which HTTP/2 is spoken by hand, and answers are thrown away.
type second struct {
	net.Conn
	*http2.Framer
	head   bytes.Buffer
	fields *hpack.Encoder
	window chan int // what may be sent of bodies
	ended  chan struct{}
}

// openSecond opens a connection of HTTP/2, until the test's end. The proxy may close it at any time.
func (r *rig) openSecond(settings ...http2.Setting) *second {
	r.t.Helper()
	trust := mcptest.TrustTLS()
	trust.NextProtos, trust.ServerName = []string{"h2"}, "127.0.0.1"
	raw, err := net.Dial("tcp", r.address())
	if err != nil {
		r.t.Fatal(err)
	}
	s := &second{Conn: tls.Client(raw, trust), window: make(chan int, 1000), ended: make(chan struct{})}
	s.Framer, s.fields = http2.NewFramer(s, s), hpack.NewEncoder(&s.head)
	s.window <- 64<<10 - 1
	_ = s.SetDeadline(time.Now().Add(mcptest.Patience))
	_, _ = io.WriteString(s, http2.ClientPreface)
	_ = s.WriteSettings(settings...)
	_ = s.WriteSettingsAck()
	go s.read()
	r.t.Cleanup(func() { raw.Close(); <-s.ended })
	return s
}

func (s *second) read() {
	defer close(s.ended)
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		if more, ok := frame.(*http2.WindowUpdateFrame); ok && more.StreamID == 0 {
			s.window <- int(more.Increment)
		}
	}
}

// send sends zeros of a body, as the proxy lets it, and reports whether the connection is still there.
func (s *second) send(stream uint32, n int) bool {
	for n > 0 {
		select {
		case have := <-s.window:
			now := min(have, n, 16<<10)
			if have -= now; have > 0 {
				s.window <- have
			}
			if s.WriteData(stream, false, make([]byte, now)) != nil {
				return false
			}
			n -= now
		case <-s.ended:
			return false
		}
	}
	return true
}

// ask begins a request whose body is to follow.
func (s *second) ask(stream uint32, fields ...string) error {
	s.head.Reset()
	for _, field := range append([]string{":method: POST", ":scheme: https", ":path: /mcp", ":authority: localhost", "content-type: application/json"}, fields...) {
		name, value, _ := strings.Cut(field, ": ")
		_ = s.fields.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	}
	block := s.head.Bytes()
	first := min(len(block), 16<<10)
	if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:first], EndHeaders: first == len(block)}); err != nil {
		return err
	}
	for block = block[first:]; len(block) > 0; block = block[first:] {
		first = min(len(block), 16<<10)
		if err := s.WriteContinuation(stream, first == len(block), block[:first]); err != nil {
			return err
		}
	}
	return nil
}

// flood has do called for so many connections, some at a time, while a known client makes calls.
func (r *rig) flood(n int, do func(s *second), settings ...http2.Setting) {
	r.t.Helper()
	var all sync.WaitGroup
	left := make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	close(left)
	for range 4 {
		all.Go(func() {
			for range left {
				do(r.openSecond(settings...))
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	r.servedUntil(over)
}

// What a connection of HTTP/2 may send at once is so little that no number of them takes the memory.
func TestMemoryUnderLargeFrames(t *testing.T) {
	r := openSecured(t, tokensFor(t, "ann", "bob")...)
	frame := make([]byte, 1<<20)
	r.flood(400, func(s *second) { _ = s.WriteRawFrame(0xfa, 0, 0, frame) })
}

// Strangers that ask as often as they may and let no answer come: each request counts as a connection.
func TestMemoryUnderStreamsThatTakeNoAnswer(t *testing.T) {
	r := openSecured(t, tokensFor(t, "ann", "bob")...)
	r.flood(60, func(s *second) {
		for stream := uint32(1); stream < 500; stream += 2 {
			if s.ask(stream, "authorization: Bearer wrong", "x: "+strings.Repeat("~", 27_000)) != nil {
				return
			}
		}
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
}

// Heads that never come to their end.
func TestMemoryUnderHeadsWithoutEnd(t *testing.T) {
	r := openSecured(t, tokensFor(t, "ann", "bob")...)
	r.flood(400, func(s *second) {
		if s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) != nil {
			return
		}
		block := append([]byte{0x10, 1, 'x', 0x7f, 0x81, 0x7f}, make([]byte, 16<<10-1)...) // one field, as long as it may be
		for range 100 {
			if s.WriteContinuation(1, false, block) != nil {
				return
			}
			block = []byte{0x10, 1, 'x', 0}
		}
	})
}

// Half-sent bodies of a principal, each so small that it waits for nobody: there are no more of them than connections.
func TestMemoryUnderHalfSentBodiesOfStreams(t *testing.T) {
	r := openSecured(t, tokensFor(t, "ann", "bob")...)
	r.flood(40, func(s *second) {
		for stream := uint32(1); stream < 500; stream += 2 {
			if s.ask(stream, "authorization: Bearer token-of-bob", "content-length: "+strconv.Itoa(64<<10)) != nil || !s.send(stream, 64<<10-1) {
				return
			}
		}
	})
}

// Handshakes that never come to their end, with a certificate as long as crypto/tls would keep.
func TestMemoryUnderHalfHandshakes(t *testing.T) {
	r := openSecured(t, tokensFor(t, "ann", "bob")...)
	hello := helloOf12(t)
	message := append([]byte{11, 0x03, 0xff, 0xf0}, make([]byte, 0x3ffe0)...) // a certificate, all but its end
	var records []byte
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		records = append(append(records, 22, 3, 3, byte(n>>8), byte(n)), message[:n]...)
		message = message[n:]
	}
	r.servedUntil(r.connections(1_500, string(hello)+string(records)))
}

// helloOf12 is how a client of TLS 1.2 begins.
func helloOf12(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		_ = tls.Client(theirs, &tls.Config{ServerName: "localhost", MaxVersion: tls.VersionTLS12}).Handshake()
	}()
	hello := make([]byte, 64<<10)
	n, err := ours.Read(hello)
	ours.Close()
	<-begun
	if err != nil {
		t.Fatal(err)
	}
	return hello[:n]
}
