package streamhttp

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// toolServer is a session with one tool, which reports progress, and says on
// the session's own stream that the list has changed.
func toolServer(s *script, m *wire.Message, to wire.Stream) wire.Pending {
	switch m.Method {
	case "tools/list":
		to.Answer(result(m, `{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}`))
	case "tools/call":
		return pending(func() {
			token := m.Bytes(m.P.MetaToken)
			to.Send(wire.NotificationMessage("notifications/progress", append(append([]byte(`{"progress":1,"progressToken":`), token...), '}')))
			s.own.Send(wire.NotificationMessage("notifications/tools/list_changed", nil))
			to.Answer(result(m, `{"content":[{"type":"text","text":"done"}]}`))
		})
	default:
		if m.Kind == wire.Request {
			to.Answer(result(m, `{}`))
		}
	}
	return nil
}

// The official SDK tries server/discover first, and must fall back.
func TestOfficialGoClient(t *testing.T) {
	r := newRig(t, ServerConfig{Loopback: true}, toolServer)
	progress, changed := make(chan string, 10), make(chan bool, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			progress <- req.Params.ProgressToken.(string)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- true },
	})
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return r.dial() }}
	defer transport.CloseIdleConnections()
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://localhost/mcp", HTTPClient: &http.Client{Transport: transport},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := <-r.sessions
	<-s.listen
	if s.Version() != "2025-11-25" {
		t.Error("negotiated", s.Version())
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 {
		t.Fatal(tools, err)
	}
	params := &mcp.CallToolParams{Name: "work"}
	params.SetProgressToken("p1")
	res, err := session.CallTool(t.Context(), params)
	if err != nil || res.Content[0].(*mcp.TextContent).Text != "done" {
		t.Fatal(res, err)
	}
	if token := <-progress; token != "p1" {
		t.Error("progress for", token)
	}
	<-changed
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	<-s.closed
	if n := r.srv.Sessions(); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}
