package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	dialTime      = 1500 * time.Millisecond // what got lost on the way is sent again after a second
	handshakeTime = 5 * time.Second         // and until the other side has said that it knows this process; a lease may end before
	idleTime      = time.Minute             // after which this side closes a connection, long before the other one
	silence       = 10 * time.Second        // for how long another machine may acknowledge nothing, or another process answer nothing
	writeTime     = 30 * time.Second        // for how long it may take nothing of an answer: its client may be slow
)

var dialer = net.Dialer{
	Timeout:         dialTime,
	Control:         func(_, _ string, c syscall.RawConn) error { return endSilent(c, silence) },
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 4, Count: 2},
}

// target is where a process takes requests, and by which certificate it is known. A process that begins anew at the
// same address is another one.
type target struct {
	address string
	key     [32]byte
}

// dial connects to a process, and has it say that it knows this one: in TLS 1.3 a client is done before the server has
// looked at its certificate, and what is sent by then may be lost without being read.
func (p *Peers) dial(ctx context.Context, to target) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, dialTime+handshakeTime)
	defer stop()
	defer context.AfterFunc(p.roster.ctx, stop)()
	raw, err := dialer.DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	counted := &countedConn{TCPConn: raw.(*net.TCPConn)}
	secured := tls.Client(counted, p.cfg.Key.to(to.key))
	ctx, stop = context.WithTimeout(ctx, handshakeTime)
	defer stop()
	err = secured.HandshakeContext(ctx)
	if err == nil {
		err = introduce(ctx, secured)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return &conn{secured, counted}, nil
}

// introduce asks whether the other side knows this process.
func introduce(ctx context.Context, c net.Conn) error {
	cut := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	_, err := fmt.Fprintf(c, "HEAD / HTTP/1.1\r\nHost: peer\r\n%s: 1\r\n\r\n", headerGreeting)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(bufio.NewReaderSize(c, 1024), &http.Request{Method: http.MethodHead})
	}
	switch {
	case !cut() || ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("asking whether this process is known: %w", err)
	case answer.StatusCode != http.StatusNoContent || answer.Close:
		return errors.New("asking whether this process is known: " + answer.Status)
	}
	return nil
}

// countedConn counts the bytes that a system has taken to be sent.
type countedConn struct {
	*net.TCPConn
	sent atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// conn is a connection to another process.
type conn struct {
	*tls.Conn
	raw *countedConn
}

// Write implements [net.Conn]. Where it fails it returns 0 only if the system has taken nothing of what was to be sent.
func (c *conn) Write(p []byte) (int, error) {
	before := c.raw.sent.Load()
	n, err := c.Conn.Write(p)
	if err != nil && n == 0 && c.raw.sent.Load() != before {
		n = 1 // of a record that was sent in part
	}
	return n, err
}
