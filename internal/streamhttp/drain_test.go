package streamhttp

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// decliner declines every request.
func decliner(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
	if m.Kind == wire.Request {
		to.(wire.DecliningStream).Decline(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, "elsewhere", nil))
	}
	return nil
}

func TestDeclined(t *testing.T) {
	r := newRig(t, ServerConfig{}, decliner)
	c := r.begin(revisionBatches)
	c.post(call(1, "a")).want(t, 200, `"elsewhere"`).wantHeader(t, "Retry-After", "").wantHeader(t, "Content-Type", typeJSON)
	c.post(call(2, "a"), "Accept: text/event-stream").want(t, 200, `"elsewhere"`).wantHeader(t, "Content-Type", typeSSE)
	c.post("["+call(3, "a")+","+call(4, "a")+"]").want(t, 200, `"elsewhere"`) // answered as one, like any batch
	c.post(`{"jsonrpc":"2.0","method":"notifications/x"}`).want(t, 202, "")
	answer := r.do(post1(strings.Replace(initBody, "%q", `"refuse"`, 1))).want(t, 503, `"elsewhere"`).wantHeader(t, "Retry-After", "1")
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

// TestCloseBeforeStrangers: the end does not wait for requests that nobody has let in.
func TestCloseBeforeStrangers(t *testing.T) {
	asked, refuse := make(chan struct{}), make(chan struct{})
	s := NewServer(ServerConfig{Path: "/mcp", Authenticate: func(http.ResponseWriter, *http.Request) (*asker.Who, bool) {
		close(asked)
		<-refuse
		return nil, false
	}})
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/mcp", nil))
	}()
	<-asked
	ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
	defer stop()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	close(refuse)
	<-over
}
