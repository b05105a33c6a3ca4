package streamhttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// decliner declines every request but initialize.
func decliner(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
	if m.Kind == wire.Request {
		to.(wire.DecliningStream).Decline(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, "elsewhere", nil))
	}
	return nil
}

func TestDeclined(t *testing.T) {
	r := newRig(t, ServerConfig{}, decliner)
	c := r.begin(revisionBatches)
	c.post(call(1, "a")).want(t, 503, `"elsewhere"`).wantHeader(t, "Retry-After", "1").wantHeader(t, "Content-Type", typeJSON)
	c.post(call(2, "a"), "Accept: text/event-stream").want(t, 503, `"elsewhere"`)
	c.post("["+call(3, "a")+","+call(4, "a")+"]").want(t, 200, `"elsewhere"`) // answered as one, like any batch
	c.post(`{"jsonrpc":"2.0","method":"notifications/x"}`).want(t, 202, "")
	answer := r.do(post1(strings.Replace(initBody, "%q", `"refuse"`, 1))).want(t, 503, `"elsewhere"`)
	if id := answer.Header.Get(headerSession); id != "" {
		t.Errorf("a session that was declined has the id %s", id)
	}
	if n := r.srv.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// What is kept for clients that have gone away is counted as the server ends.
func TestAnswersLostAtTheEnd(t *testing.T) {
	var lines bytes.Buffer
	release := make(chan struct{})
	r := newRig(t, ServerConfig{Log: hclog.New(&hclog.LoggerOptions{Output: &lines})}, chatty(release))
	c := r.begin("2025-11-25")
	gone, back, there := c.open(call(1, "slow")).events(), c.open(call(2, "slow")).events(), c.open(call(3, "slow")).events()
	gone.message(`"data":1`)
	last := back.message(`"data":1`).id
	there.message(`"data":1`)
	gone.Close()
	back.Close()
	ses := r.srv.table.all(nil)[0]
	eventually(t, "the clients have gone", func() bool {
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return ses.abandoned() == 2
	})
	close(release)
	there.message(`"data":2`)
	there.message("done")
	there.end()
	resumed := c.stream("Last-Event-ID: " + last)
	resumed.message(`"data":2`)
	resumed.message("done")
	resumed.end()
	if err := r.srv.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if text := lines.String(); strings.Count(text, "answers are lost") != 1 || !strings.Contains(text, "answers=1\n") {
		t.Errorf("the log says %q", text)
	}
	r.do(post1(call(1, "a"), c.id)).want(t, 503, "shutting down").wantHeader(t, "Retry-After", "1")
}

// A server that retires takes all that comes, and ends each connection behind
// its next answer.
func TestRetire(t *testing.T) {
	srv := &LeanServer{}
	r := newLeanRig(t, srv, func(w http.ResponseWriter, r *http.Request) { echo(w, r) })
	idle := r.connect()
	if p := idle.send(okPost).reply().want(t, 200, "hi"); p.Close {
		t.Error("it ends connections before it retires")
	}
	srv.Retire()
	for _, c := range []*conn{idle, r.connect()} {
		if p := c.send(okPost).reply().want(t, 200, "hi"); !p.Close {
			t.Error("the last answer does not say that it is")
		}
		c.ended()
	}
	eventually(t, "no connections", func() bool { return srv.Connections() == 0 })
}

// A stream whose client was watched ends with its connection.
func TestWatchedStreamEndsWithItsConnection(t *testing.T) {
	var lines bytes.Buffer
	release := make(chan struct{})
	srv := &LeanServer{Log: hclog.New(&hclog.LoggerOptions{Output: &lines})}
	r := newLeanRig(t, srv, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-release
	})
	c := r.connect()
	answer := c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").response()
	eventually(t, "it is watched", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		for c := range srv.conns {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.watched != nil
		}
		return false
	})
	close(release)
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Error(err)
	}
	c.ended()
	eventually(t, "no connections", func() bool { return srv.Connections() == 0 })
	if lines.Len() > 0 {
		t.Errorf("the log says %s", lines.String())
	}
}
